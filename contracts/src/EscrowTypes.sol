// SPDX-License-Identifier: Apache-2.0
// What the escrow and its token collectors share: the terms of a payment, and the calls between the two. Names and layout are
// those of base/commerce-payments, whose deployments the service uses on public networks.
pragma solidity 0.8.37;

/// @notice The terms of a payment. The chain keeps only their hash.
struct PaymentInfo {
    /// @notice Who may authorize, charge, capture, void and refund.
    address operator;
    /// @notice Whose money it is; zero in the hash that the payer signs.
    address payer;
    /// @notice Who gets what is captured, less the fee.
    address receiver;
    address token;
    /// @notice The most that may be authorized or charged, in base units; what the payer signs for.
    uint120 maxAmount;
    /// @notice Unix seconds: authorized or charged before this, captured before the next, refunded before the last.
    uint48 preApprovalExpiry;
    uint48 authorizationExpiry;
    uint48 refundExpiry;
    /// @notice Hundredths of a percent: the bounds of the fee of each capture or charge.
    uint16 minFeeBps;
    uint16 maxFeeBps;
    /// @notice Who gets the fees; zero: whom the operator names.
    address feeReceiver;
    uint256 salt;
}

/// @notice Pulls tokens for the escrow: from the payer for a payment, or from whoever funds a refund.
interface ITokenCollector {
    enum CollectorType {
        Payment,
        Refund
    }

    /// @notice What it pulls for; the escrow refuses it for anything else.
    function collectorType() external view returns (CollectorType);

    /// @notice Puts exactly `amount` of the payment's token into `tokenStore`.
    function collectTokens(
        PaymentInfo calldata paymentInfo,
        address tokenStore,
        uint256 amount,
        bytes calldata collectorData
    ) external;
}

/// @notice What a collector asks the escrow.
interface IPaymentHash {
    /// @notice The hash of a payment on this chain and this escrow.
    function getHash(PaymentInfo calldata paymentInfo) external view returns (bytes32);
}
