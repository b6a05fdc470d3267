// SPDX-License-Identifier: Apache-2.0
// The receiving address of one thing that is sold: holds what arrives until its factory says where it goes. Every
// deposit is a plain clone (ERC-1167) of one implementation, so it costs little to put in place.
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";

/// @notice A deposit knows no terms: its address is a hash of them, and the factory checks them by computing it again.
contract Deposit {
    using SafeERC20 for IERC20;

    /// @notice The factory that made the implementation, the only caller that a deposit obeys.
    address public immutable factory;

    /// @notice Refused because only the factory compares a destination with the terms.
    error OnlyFactory();

    constructor() {
        factory = msg.sender;
    }

    modifier onlyFactory() {
        if (msg.sender != factory) revert OnlyFactory();
        _;
    }

    /// @notice Sends `amount` of `token`, also of a token whose `transfer` returns nothing; one that returns false fails.
    function send(IERC20 token, address to, uint256 amount) external onlyFactory {
        token.safeTransfer(to, amount);
    }

    /// @notice Sends all ether, which may lie here from before the deposit was in place; a deposit in place refuses it.
    function sendEther(address payable to) external onlyFactory {
        Address.sendValue(to, address(this).balance);
    }
}
