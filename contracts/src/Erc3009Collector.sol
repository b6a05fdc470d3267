// SPDX-License-Identifier: Apache-2.0
// Pulls a payment from its payer by one signature (EIP-3009), which names all terms of the payment: its nonce is their hash
// with the payer zero, so that it can be asked for before anyone knows who pays. For the sandbox and tests, as the escrow.
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IPaymentHash, ITokenCollector, PaymentInfo} from "./EscrowTypes.sol";

interface IReceiveWithAuthorization {
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external;
}

contract Erc3009Collector is ITokenCollector {
    using SafeERC20 for IERC20;

    /// @notice The one escrow that it pulls for.
    address public immutable authCaptureEscrow;

    /// @notice Refused because only the escrow checks the amount and the terms.
    error OnlyAuthCaptureEscrow();

    constructor(address authCaptureEscrow_) {
        authCaptureEscrow = authCaptureEscrow_;
    }

    /// @notice It pulls payments, no refunds.
    function collectorType() external pure returns (CollectorType) {
        return CollectorType.Payment;
    }

    /// @notice Receives `maxAmount`, which the payer signed for, and returns to the payer what is above `amount`.
    /// `collectorData` is the signature, of a key or of a contract wallet (ERC-1271).
    function collectTokens(
        PaymentInfo calldata paymentInfo,
        address tokenStore,
        uint256 amount,
        bytes calldata collectorData
    ) external {
        if (msg.sender != authCaptureEscrow) revert OnlyAuthCaptureEscrow();
        PaymentInfo memory signed = paymentInfo;
        signed.payer = address(0);
        IReceiveWithAuthorization(paymentInfo.token).receiveWithAuthorization(
            paymentInfo.payer,
            address(this),
            paymentInfo.maxAmount,
            0,
            paymentInfo.preApprovalExpiry,
            IPaymentHash(authCaptureEscrow).getHash(signed),
            collectorData
        );
        IERC20 token = IERC20(paymentInfo.token);
        if (paymentInfo.maxAmount > amount) token.safeTransfer(paymentInfo.payer, paymentInfo.maxAmount - amount);
        token.safeTransfer(tokenStore, amount);
    }
}
