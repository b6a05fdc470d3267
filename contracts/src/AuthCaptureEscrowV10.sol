// SPDX-License-Identifier: Apache-2.0
// The escrow with the interface of v1.0: fees are hundredths of a percent.
pragma solidity 0.8.37;

import {EscrowBase} from "./EscrowBase.sol";
import {ITokenCollector, PaymentInfo} from "./EscrowTypes.sol";

contract AuthCaptureEscrowV10 is EscrowBase {
    event PaymentCharged(
        bytes32 indexed paymentInfoHash,
        PaymentInfo paymentInfo,
        uint256 amount,
        address tokenCollector,
        uint16 feeBps,
        address feeReceiver
    );
    event PaymentCaptured(bytes32 indexed paymentInfoHash, uint256 amount, uint16 feeBps, address feeReceiver);

    /// @notice Refused because the terms bound the fee.
    error FeeBpsOutOfRange(uint16 feeBps, uint16 minFeeBps, uint16 maxFeeBps);

    /// @notice Pulls `amount` through the collector and pays it out at once, the fee, rounded down, to `feeReceiver`.
    function charge(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        address tokenCollector,
        bytes calldata collectorData,
        uint16 feeBps,
        address feeReceiver
    ) external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {
        bytes32 hash = _requirePayable(paymentInfo, amount);
        _requireFee(paymentInfo, feeBps, feeReceiver);
        paymentState[hash] = PaymentState(true, 0, uint120(amount));
        emit PaymentCharged(hash, paymentInfo, amount, tokenCollector, feeBps, feeReceiver);
        _collect(paymentInfo, amount, tokenCollector, collectorData, ITokenCollector.CollectorType.Payment);
        _distribute(paymentInfo, amount, (amount * feeBps) / MAX_FEE_BPS, feeReceiver);
    }

    /// @notice Pays out `amount` of what is held, the fee, rounded down, to `feeReceiver`. May be repeated while something is
    /// held.
    function capture(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        uint16 feeBps,
        address feeReceiver
    ) external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {
        _requireFee(paymentInfo, feeBps, feeReceiver);
        bytes32 hash = _takeCaptured(paymentInfo, amount);
        emit PaymentCaptured(hash, amount, feeBps, feeReceiver);
        _distribute(paymentInfo, amount, (amount * feeBps) / MAX_FEE_BPS, feeReceiver);
    }

    function _requireFee(PaymentInfo calldata paymentInfo, uint16 feeBps, address feeReceiver) private pure {
        (uint16 least, uint16 most) = (paymentInfo.minFeeBps, paymentInfo.maxFeeBps);
        if (feeBps < least || feeBps > most) revert FeeBpsOutOfRange(feeBps, least, most);
        _requireFeeReceiver(paymentInfo, feeBps > 0, feeReceiver);
    }
}
