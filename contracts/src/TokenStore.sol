// SPDX-License-Identifier: Apache-2.0
// Holds the tokens of one operator's payments, apart from those of all other operators. Every store is a plain clone
// (ERC-1167) of one implementation.
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

contract TokenStore {
    using SafeERC20 for IERC20;

    /// @notice The escrow that made the implementation, the only caller that a store obeys.
    address public immutable authCaptureEscrow;

    /// @notice Refused because only the escrow knows whose tokens these are.
    error OnlyAuthCaptureEscrow();

    constructor() {
        authCaptureEscrow = msg.sender;
    }

    /// @notice Sends `amount` of `token`, also of a token whose `transfer` returns nothing; one that returns false fails.
    function sendTokens(IERC20 token, address to, uint256 amount) external {
        if (msg.sender != authCaptureEscrow) revert OnlyAuthCaptureEscrow();
        token.safeTransfer(to, amount);
    }
}
