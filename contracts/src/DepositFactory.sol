// SPDX-License-Identifier: Apache-2.0
// Names deposit addresses before they exist, and lets money leave a deposit only to those whom its address names: the
// merchant, the payees of its split, or whom its approver signed for. The operator's key chooses among them, no more.
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {Deposit} from "./Deposit.sol";

/// @notice What a deposit's address commits to.
struct Terms {
    /// @notice The merchant's payout address.
    address owner;
    /// @notice Whose signature sends money back to payers; nobody's when zero. The factory itself stands for whoever is its
    /// operator at the time, who sends such money back by sending the call.
    address approver;
    /// @notice keccak256(abi.encode(payees, percentsE4)) of the split, zero without one.
    bytes32 payeesHash;
    /// @notice Unix seconds after which anyone may send everything to the owner.
    uint64 openAfter;
}

/// @notice No function is payable, so `multicall` can't spend a value twice.
contract DepositFactory is Pausable, Multicall {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant GIVE_BACK_TYPEHASH =
        keccak256(
            "GiveBack(address token,address to,uint256 amount,address deposit,bytes32 nonce,uint256 deadline)"
        );

    /// @notice The cold account that may pause releases and replace a stolen operator, and can do nothing else.
    address public immutable guardian;

    /// @notice The code behind every deposit, made here so that its address follows from the factory's own.
    address public immutable implementation;

    /// @notice The one account that may release.
    address public operator;

    /// @notice True once a signature with this nonce moved money out of this deposit, because it must not do so twice.
    mapping(address deposit => mapping(bytes32 nonce => bool)) public isUsed;

    event OperatorChanged(address operator);

    /// @notice Emitted because anyone may submit a signature: whoever keeps books of a deposit learns here that a transfer
    /// out of it was approved.
    event GivenBack(address indexed deposit, address token, address to, uint256 amount, bytes32 nonce);

    /// @notice Refused because only the operator's books say who is owed how much.
    error OnlyOperator();

    /// @notice Refused because whoever stole the operator's key must not be able to undo the guardian's answer.
    error OnlyGuardian();

    /// @notice Refused because nothing could be released, or nobody could ever replace the operator.
    error ZeroAddress();

    /// @notice Refused because the deposit's address commits to other payees or percentages.
    error OtherPayees();

    /// @notice Refused because the deposit's address does not name this recipient.
    error NotAPayee(address to);

    /// @notice Refused because money at the deposit, the factory, the token or zero is lost, or never moved.
    error BadRecipient(address to);

    /// @notice Refused because the approver's word ended at `deadline` (unix seconds).
    error Expired(uint256 deadline);

    /// @notice Refused because the approver did not sign exactly this.
    error BadSignature();

    /// @notice Refused because a signature counts once.
    error NonceUsed(bytes32 nonce);

    /// @notice Refused because until `openAfter` (unix seconds) has passed the operator may still owe parts to others.
    error NotOpenYet(uint64 openAfter);

    modifier onlyGuardian() {
        if (msg.sender != guardian) revert OnlyGuardian();
        _;
    }

    /// @dev Both come as arguments, because the sender is a deployer that everyone shares; so they decide the address.
    constructor(address guardian_, address operator_) {
        if (guardian_ == address(0)) revert ZeroAddress();
        guardian = guardian_;
        implementation = address(new Deposit());
        _setOperator(operator_);
    }

    /// @notice Moves `amount` of `token` from a deposit to its owner, or to a payee of the split that its address commits
    /// to; to the owner the lists may be empty. Puts the deposit in place if this is its first time.
    function release(
        bytes32 salt,
        Terms calldata terms,
        address[] calldata payees,
        uint256[] calldata percentsE4,
        IERC20 token,
        address to,
        uint256 amount
    ) external whenNotPaused {
        _checkOperator();
        if (to != terms.owner) {
            if (keccak256(abi.encode(payees, percentsE4)) != terms.payeesHash) revert OtherPayees();
            if (!_includes(payees, to)) revert NotAPayee(to);
        }
        _send(_deposit(salt, terms), token, to, amount);
    }

    /// @notice Moves `amount` of `token` to whom the deposit's approver signed for (EIP-712; a contract by ERC-1271), once
    /// for each nonce of a deposit. Anyone may submit it, paused or not: the signature says everything. Where the approver is
    /// this factory, no signature counts: the operator alone may submit it, and not while paused.
    function giveBack(
        bytes32 salt,
        Terms calldata terms,
        IERC20 token,
        address to,
        uint256 amount,
        bytes32 nonce,
        uint256 deadline,
        bytes calldata signature
    ) external {
        Deposit deposit = _deposit(salt, terms);
        if (block.timestamp > deadline) revert Expired(deadline);
        bytes32 what = keccak256(abi.encode(GIVE_BACK_TYPEHASH, token, to, amount, deposit, nonce, deadline));
        bytes32 digest = MessageHashUtils.toTypedDataHash(_domainSeparator(), what);
        _checkApproval(terms.approver, digest, signature);
        if (isUsed[address(deposit)][nonce]) revert NonceUsed(nonce);
        // Before the transfer, as a token may call back with the same signature.
        isUsed[address(deposit)][nonce] = true;
        emit GivenBack(address(deposit), address(token), to, amount, nonce);
        _send(deposit, token, to, amount);
    }

    /// @notice Sends all of `token` to the deposit's owner after `openAfter`, or at any time all ether, which nothing
    /// sells for (`token` zero). For anyone, paused or not, so that money outlives the service.
    function recover(bytes32 salt, Terms calldata terms, IERC20 token) external {
        Deposit deposit = _deposit(salt, terms);
        if (address(token) == address(0)) {
            _checkRecipient(deposit, token, terms.owner);
            deposit.sendEther(payable(terms.owner));
            return;
        }
        if (block.timestamp <= terms.openAfter) revert NotOpenYet(terms.openAfter);
        _send(deposit, token, terms.owner, token.balanceOf(address(deposit)));
    }

    /// @notice Stops releases, by the guardian, when the operator's key may be stolen.
    function pause() external onlyGuardian {
        _pause();
    }

    /// @notice Lets the operator release again.
    function unpause() external onlyGuardian {
        _unpause();
    }

    /// @notice Replaces the operator, by the guardian, so that a stolen key is worth nothing from then on.
    function setOperator(address next) external onlyGuardian {
        _setOperator(next);
    }

    /// @notice Where the deposit of these terms is or will be; any other salt or terms give another address.
    function addressOf(bytes32 salt, Terms calldata terms) public view returns (address) {
        return Clones.predictDeterministicAddress(implementation, _saltOf(salt, terms));
    }

    function _setOperator(address next) private {
        if (next == address(0)) revert ZeroAddress();
        operator = next;
        emit OperatorChanged(next);
    }

    /// @dev Terms that are not the deposit's own lead to another address, which is how the terms are checked.
    function _deposit(bytes32 salt, Terms calldata terms) private returns (Deposit) {
        address deposit = addressOf(salt, terms);
        if (deposit.code.length == 0) Clones.cloneDeterministic(implementation, _saltOf(salt, terms));
        return Deposit(deposit);
    }

    /// @dev A key in the terms would be the approver for ever. The factory in its place means today's operator, so that
    /// `pause` and `setOperator` take a stolen key's word away from money that already lies in deposits.
    function _checkApproval(address approver, bytes32 digest, bytes calldata signature) private view {
        if (approver == address(this)) {
            _requireNotPaused();
            _checkOperator();
        } else if (!SignatureChecker.isValidSignatureNowCalldata(approver, digest, signature)) {
            revert BadSignature();
        }
    }

    function _checkOperator() private view {
        if (msg.sender != operator) revert OnlyOperator();
    }

    function _send(Deposit deposit, IERC20 token, address to, uint256 amount) private {
        _checkRecipient(deposit, token, to);
        deposit.send(token, to, amount);
    }

    function _checkRecipient(Deposit deposit, IERC20 token, address to) private view {
        if (to == address(0)) revert BadRecipient(to);
        if (to == address(deposit)) revert BadRecipient(to);
        if (to == address(this)) revert BadRecipient(to);
        if (to == address(token)) revert BadRecipient(to);
    }

    function _includes(address[] calldata list, address one) private pure returns (bool) {
        for (uint256 i; i < list.length; ++i) if (list[i] == one) return true;
        return false;
    }

    function _saltOf(bytes32 salt, Terms calldata terms) private pure returns (bytes32) {
        return keccak256(abi.encode(salt, terms));
    }

    /// @dev Computed at each use, and not kept as an immutable, so that the factory has the same code on every network.
    function _domainSeparator() private view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, keccak256("Sluice"), keccak256("2"), block.chainid, address(this)));
    }
}
