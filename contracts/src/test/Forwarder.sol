// SPDX-License-Identifier: Apache-2.0
// A contract that pays: for tests in which the account that sends a transaction is not the one its tokens come from.
// Anyone may spend what it holds.
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

contract Forwarder {
    using SafeERC20 for IERC20;

    /// @notice Sends the forwarder's own tokens once, as a contract wallet or an exchange would.
    function forward(IERC20 token, address to, uint256 amount) external {
        token.safeTransfer(to, amount);
    }

    /// @notice Sends several times in one transaction, as one hash may then carry several payments.
    function pay(IERC20 token, address[] calldata to, uint256[] calldata amount) external {
        require(to.length == amount.length, "Forwarder: lengths differ");
        for (uint256 i = 0; i < to.length; i++) token.safeTransfer(to[i], amount[i]);
    }
}
