// SPDX-License-Identifier: Apache-2.0
// Holds a buyer's money between authorization and capture. Everything but `charge` and `capture`, whose fees the two versions
// take in different units. For the sandbox and tests: on public networks stands the audited contract of
// base/commerce-payments. This one has its interface, and was written from a description of what that one does.
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {IPaymentHash, ITokenCollector, PaymentInfo} from "./EscrowTypes.sol";
import {TokenStore} from "./TokenStore.sol";

/// @notice Anyone can be an operator, and name anyone as receiver: who reads an event must look at its operator and collector.
abstract contract EscrowBase is IPaymentHash, ReentrancyGuard {
    struct PaymentState {
        /// @notice True for ever once money was collected, so that one set of terms is paid once.
        bool hasCollectedPayment;
        /// @notice Base units that are held and can be captured, voided or reclaimed.
        uint120 capturableAmount;
        /// @notice Base units that were captured and not refunded.
        uint120 refundableAmount;
    }

    bytes32 public constant PAYMENT_INFO_TYPEHASH =
        keccak256(
            "PaymentInfo(address operator,address payer,address receiver,address token,uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)"
        );

    uint16 internal constant MAX_FEE_BPS = 10_000;

    /// @notice The code behind every token store.
    address public immutable tokenStoreImplementation;

    mapping(bytes32 paymentInfoHash => PaymentState) public paymentState;

    event PaymentAuthorized(
        bytes32 indexed paymentInfoHash,
        PaymentInfo paymentInfo,
        uint256 amount,
        address tokenCollector
    );
    event PaymentVoided(bytes32 indexed paymentInfoHash, uint256 amount);
    event PaymentReclaimed(bytes32 indexed paymentInfoHash, uint256 amount);
    event PaymentRefunded(bytes32 indexed paymentInfoHash, uint256 amount, address tokenCollector);
    event TokenStoreCreated(address indexed operator, address tokenStore);

    /// @notice Refused because the terms name another account for this.
    error InvalidSender(address sender, address expected);
    /// @notice Refused because nothing would move.
    error ZeroAmount();
    /// @notice Refused because the state keeps 120 bits.
    error AmountOverflow(uint256 amount, uint256 limit);
    /// @notice Refused because the payer signed for less.
    error ExceedsMaxAmount(uint256 amount, uint256 maxAmount);
    /// @notice Refused because the payer's word has ended.
    error AfterPreApprovalExpiry(uint48 timestamp, uint48 expiry);
    /// @notice Refused because the three times are not in order.
    error InvalidExpiries(uint48 preApproval, uint48 authorization, uint48 refund);
    /// @notice Refused because the fee could exceed the payment.
    error FeeBpsOverflow(uint16 feeBps);
    /// @notice Refused because no fee is within the bounds.
    error InvalidFeeBpsRange(uint16 minFeeBps, uint16 maxFeeBps);
    /// @notice Refused because a fee would go to nobody.
    error ZeroFeeReceiver();
    /// @notice Refused because the terms name another receiver of fees.
    error InvalidFeeReceiver(address attempted, address expected);
    /// @notice Refused because a collector of payments must not fund refunds, nor the other way round.
    error InvalidCollectorForOperation();
    /// @notice Refused because the collector delivered more or less than the amount.
    error TokenCollectionFailed();
    /// @notice Refused because these terms were paid before.
    error PaymentAlreadyCollected(bytes32 paymentInfoHash);
    /// @notice Refused because the payer may reclaim by now.
    error AfterAuthorizationExpiry(uint48 timestamp, uint48 expiry);
    /// @notice Refused because less than this is held.
    error InsufficientAuthorization(bytes32 paymentInfoHash, uint256 authorizedAmount, uint256 requestedAmount);
    /// @notice Refused because nothing is held.
    error ZeroAuthorization(bytes32 paymentInfoHash);
    /// @notice Refused because the operator may still capture.
    error BeforeAuthorizationExpiry(uint48 timestamp, uint48 expiry);
    /// @notice Refused because the time for refunds has ended.
    error AfterRefundExpiry(uint48 timestamp, uint48 expiry);
    /// @notice Refused because less than this was captured and not refunded.
    error RefundExceedsCapture(uint256 refund, uint256 captured);

    modifier onlySender(address expected) {
        if (msg.sender != expected) revert InvalidSender(msg.sender, expected);
        _;
    }

    modifier validAmount(uint256 amount) {
        if (amount == 0) revert ZeroAmount();
        if (amount > type(uint120).max) revert AmountOverflow(amount, type(uint120).max);
        _;
    }

    constructor() {
        tokenStoreImplementation = address(new TokenStore());
    }

    /// @notice Pulls `amount` through the collector and holds it, once for these terms.
    function authorize(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        address tokenCollector,
        bytes calldata collectorData
    ) external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {
        bytes32 hash = _requirePayable(paymentInfo, amount);
        // The modifier and `_requirePayable` bound the amount.
        paymentState[hash] = PaymentState(true, uint120(amount), 0);
        emit PaymentAuthorized(hash, paymentInfo, amount, tokenCollector);
        _collect(paymentInfo, amount, tokenCollector, collectorData, ITokenCollector.CollectorType.Payment);
    }

    /// @notice Returns all that is held to the payer, by the operator, at any time.
    function void(PaymentInfo calldata paymentInfo) external nonReentrant onlySender(paymentInfo.operator) {
        bytes32 hash = getHash(paymentInfo);
        uint256 amount = _takeHeld(hash);
        emit PaymentVoided(hash, amount);
        _send(paymentInfo.operator, paymentInfo.token, paymentInfo.payer, amount);
    }

    /// @notice Returns all that is held to the payer, by the payer, from the authorization's expiry on.
    function reclaim(PaymentInfo calldata paymentInfo) external nonReentrant onlySender(paymentInfo.payer) {
        if (block.timestamp < paymentInfo.authorizationExpiry)
            revert BeforeAuthorizationExpiry(uint48(block.timestamp), paymentInfo.authorizationExpiry);
        bytes32 hash = getHash(paymentInfo);
        uint256 amount = _takeHeld(hash);
        emit PaymentReclaimed(hash, amount);
        _send(paymentInfo.operator, paymentInfo.token, paymentInfo.payer, amount);
    }

    /// @notice Pulls `amount` of what was captured through the collector, and sends it to the payer.
    function refund(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        address tokenCollector,
        bytes calldata collectorData
    ) external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {
        if (block.timestamp >= paymentInfo.refundExpiry)
            revert AfterRefundExpiry(uint48(block.timestamp), paymentInfo.refundExpiry);
        bytes32 hash = getHash(paymentInfo);
        uint120 captured = paymentState[hash].refundableAmount;
        if (amount > captured) revert RefundExceedsCapture(amount, captured);
        paymentState[hash].refundableAmount = captured - uint120(amount);
        emit PaymentRefunded(hash, amount, tokenCollector);
        _collect(paymentInfo, amount, tokenCollector, collectorData, ITokenCollector.CollectorType.Refund);
        _send(paymentInfo.operator, paymentInfo.token, paymentInfo.payer, amount);
    }

    /// @notice The hash of a payment on this chain and this escrow: another chain or escrow has another one.
    function getHash(PaymentInfo calldata paymentInfo) public view returns (bytes32) {
        bytes32 structHash = keccak256(abi.encode(PAYMENT_INFO_TYPEHASH, paymentInfo));
        return keccak256(abi.encode(block.chainid, address(this), structHash));
    }

    /// @notice Where the tokens of an operator's payments are held, in place or not.
    function getTokenStore(address operator) public view returns (address) {
        return Clones.predictDeterministicAddress(tokenStoreImplementation, _saltOf(operator));
    }

    /// @dev The hash of terms that can be paid now with this amount; reverts where they can't.
    function _requirePayable(PaymentInfo calldata paymentInfo, uint256 amount) internal view returns (bytes32 hash) {
        (uint48 preApproval, uint48 authorization) = (paymentInfo.preApprovalExpiry, paymentInfo.authorizationExpiry);
        uint48 refundEnd = paymentInfo.refundExpiry;
        (uint16 minFeeBps, uint16 maxFeeBps) = (paymentInfo.minFeeBps, paymentInfo.maxFeeBps);
        if (amount > paymentInfo.maxAmount) revert ExceedsMaxAmount(amount, paymentInfo.maxAmount);
        if (block.timestamp >= preApproval) revert AfterPreApprovalExpiry(uint48(block.timestamp), preApproval);
        if (preApproval > authorization || authorization > refundEnd)
            revert InvalidExpiries(preApproval, authorization, refundEnd);
        if (maxFeeBps > MAX_FEE_BPS) revert FeeBpsOverflow(maxFeeBps);
        if (minFeeBps > maxFeeBps) revert InvalidFeeBpsRange(minFeeBps, maxFeeBps);
        hash = getHash(paymentInfo);
        if (paymentState[hash].hasCollectedPayment) revert PaymentAlreadyCollected(hash);
    }

    /// @dev The hash of a payment, after `amount` of what is held became captured.
    function _takeCaptured(PaymentInfo calldata paymentInfo, uint256 amount) internal returns (bytes32 hash) {
        if (block.timestamp >= paymentInfo.authorizationExpiry)
            revert AfterAuthorizationExpiry(uint48(block.timestamp), paymentInfo.authorizationExpiry);
        hash = getHash(paymentInfo);
        PaymentState storage state = paymentState[hash];
        uint120 held = state.capturableAmount;
        if (amount > held) revert InsufficientAuthorization(hash, held, amount);
        state.capturableAmount = held - uint120(amount);
        state.refundableAmount += uint120(amount);
    }

    /// @dev All that was held; nothing is held any more.
    function _takeHeld(bytes32 hash) private returns (uint256 amount) {
        amount = paymentState[hash].capturableAmount;
        if (amount == 0) revert ZeroAuthorization(hash);
        paymentState[hash].capturableAmount = 0;
    }

    /// @dev A receiver that the terms name is required even where the fee is zero.
    function _requireFeeReceiver(PaymentInfo calldata paymentInfo, bool hasFee, address feeReceiver) internal pure {
        address expected = paymentInfo.feeReceiver;
        if (hasFee && feeReceiver == address(0)) revert ZeroFeeReceiver();
        if (expected != address(0) && feeReceiver != expected) revert InvalidFeeReceiver(feeReceiver, expected);
    }

    /// @dev Has the collector put exactly `amount` into the operator's store. A token that keeps a part of each transfer, and
    /// a collector that does not deliver, fail here.
    function _collect(
        PaymentInfo calldata paymentInfo,
        uint256 amount,
        address tokenCollector,
        bytes calldata collectorData,
        ITokenCollector.CollectorType kind
    ) internal {
        ITokenCollector collector = ITokenCollector(tokenCollector);
        if (collector.collectorType() != kind) revert InvalidCollectorForOperation();
        address store = _placeTokenStore(paymentInfo.operator);
        IERC20 token = IERC20(paymentInfo.token);
        uint256 before = token.balanceOf(store);
        collector.collectTokens(paymentInfo, store, amount, collectorData);
        if (token.balanceOf(store) != before + amount) revert TokenCollectionFailed();
    }

    /// @dev Pays out of the operator's store: the fee, and the rest to the receiver.
    function _distribute(PaymentInfo calldata paymentInfo, uint256 amount, uint256 fee, address feeReceiver) internal {
        if (fee > 0) _send(paymentInfo.operator, paymentInfo.token, feeReceiver, fee);
        if (amount > fee) _send(paymentInfo.operator, paymentInfo.token, paymentInfo.receiver, amount - fee);
    }

    function _send(address operator, address token, address to, uint256 amount) private {
        TokenStore(getTokenStore(operator)).sendTokens(IERC20(token), to, amount);
    }

    /// @dev Only collecting places a store: whatever is sent was collected before.
    function _placeTokenStore(address operator) private returns (address store) {
        store = getTokenStore(operator);
        if (store.code.length > 0) return store;
        Clones.cloneDeterministic(tokenStoreImplementation, _saltOf(operator));
        emit TokenStoreCreated(operator, store);
    }

    function _saltOf(address operator) private pure returns (bytes32) {
        return bytes32(bytes20(operator));
    }
}
