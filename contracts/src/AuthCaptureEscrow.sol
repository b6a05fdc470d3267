// SPDX-License-Identifier: Apache-2.0
// The escrow with the interface of v1.1: fees are amounts of the token.
pragma solidity 0.8.37;

import {EscrowBase} from "./EscrowBase.sol";
import {ITokenCollector, PaymentInfo} from "./EscrowTypes.sol";

contract AuthCaptureEscrow is EscrowBase {
    event PaymentCharged(
        bytes32 indexed paymentInfoHash,
        PaymentInfo paymentInfo,
        uint256 amount,
        address tokenCollector,
        uint256 feeAmount,
        address feeReceiver
    );
    event PaymentCaptured(bytes32 indexed paymentInfoHash, uint256 amount, uint256 feeAmount, address feeReceiver);

    /// @notice Refused because the terms bound the fee of this amount, both bounds rounded down.
    error FeeAmountOutOfRange(uint256 feeAmount, uint256 minFeeAmount, uint256 maxFeeAmount);

    /// @notice Pulls `amount` through the collector and pays it out at once, `feeAmount` of it to `feeReceiver`.
    function charge(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        address tokenCollector,
        bytes calldata collectorData,
        uint256 feeAmount,
        address feeReceiver
    ) external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {
        bytes32 hash = _requirePayable(paymentInfo, amount);
        _requireFee(paymentInfo, amount, feeAmount, feeReceiver);
        paymentState[hash] = PaymentState(true, 0, uint120(amount));
        emit PaymentCharged(hash, paymentInfo, amount, tokenCollector, feeAmount, feeReceiver);
        _collect(paymentInfo, amount, tokenCollector, collectorData, ITokenCollector.CollectorType.Payment);
        _distribute(paymentInfo, amount, feeAmount, feeReceiver);
    }

    /// @notice Pays out `amount` of what is held, `feeAmount` of it to `feeReceiver`. May be repeated while something is held.
    function capture(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        uint256 feeAmount,
        address feeReceiver
    ) external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {
        _requireFee(paymentInfo, amount, feeAmount, feeReceiver);
        bytes32 hash = _takeCaptured(paymentInfo, amount);
        emit PaymentCaptured(hash, amount, feeAmount, feeReceiver);
        _distribute(paymentInfo, amount, feeAmount, feeReceiver);
    }

    function _requireFee(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        uint256 feeAmount,
        address feeReceiver
    ) private pure {
        uint256 least = (amount * paymentInfo.minFeeBps) / MAX_FEE_BPS;
        uint256 most = (amount * paymentInfo.maxFeeBps) / MAX_FEE_BPS;
        if (feeAmount < least || feeAmount > most) revert FeeAmountOutOfRange(feeAmount, least, most);
        _requireFeeReceiver(paymentInfo, feeAmount > 0, feeReceiver);
    }
}
