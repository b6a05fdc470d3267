// SPDX-License-Identifier: Apache-2.0
// Pulls refunds from the wallet of the merchant who got the payment, by the allowance that the merchant gave this contract.
// Anyone can create payments in the escrow, with any receiver; so the allowance is safe only because this contract serves one
// operator, and only payments without fees: with a fee of 100 %, a payment gives its receiver nothing and could still be
// refunded out of the receiver's wallet.
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ITokenCollector, PaymentInfo} from "./EscrowTypes.sol";

/// @notice Nobody can change it, and it never holds tokens.
contract RefundCollector is ITokenCollector {
    using SafeERC20 for IERC20;

    /// @notice The one escrow that it pulls for. It has checked that so much was captured and not refunded, that the operator
    /// asks, and that the money goes to the payer.
    address public immutable authCaptureEscrow;

    /// @notice The one operator whose payments it refunds.
    address public immutable operator;

    /// @notice Refused because only the escrow knows what may be refunded, and to whom.
    error OnlyAuthCaptureEscrow();

    /// @notice Refused because another operator's payments are no business of those who trust this one.
    error OtherOperator(address operator);

    /// @notice Refused because the receiver may have got less than would be pulled.
    error FeesAllowed(uint16 maxFeeBps);

    /// @notice Refused because nobody could ever refund.
    error ZeroAddress();

    constructor(address authCaptureEscrow_, address operator_) {
        if (authCaptureEscrow_ == address(0) || operator_ == address(0)) revert ZeroAddress();
        (authCaptureEscrow, operator) = (authCaptureEscrow_, operator_);
    }

    /// @notice It pulls refunds: the escrow refuses it for payments, with which a merchant's allowance would pay for a stranger.
    function collectorType() external pure returns (CollectorType) {
        return CollectorType.Refund;
    }

    /// @notice Pulls `amount` of the payment's token from its receiver.
    function collectTokens(
        PaymentInfo calldata paymentInfo,
        address tokenStore,
        uint256 amount,
        bytes calldata
    ) external {
        if (msg.sender != authCaptureEscrow) revert OnlyAuthCaptureEscrow();
        if (paymentInfo.operator != operator) revert OtherOperator(paymentInfo.operator);
        if (paymentInfo.maxFeeBps != 0) revert FeesAllowed(paymentInfo.maxFeeBps);
        IERC20(paymentInfo.token).safeTransferFrom(paymentInfo.receiver, tokenStore, amount);
    }
}
