// SPDX-License-Identifier: Apache-2.0
// Where the roots of receipts and the keys that sign them are written, so that receipts can be verified when the service
// that made them is gone. It keeps nothing: events are enough for whoever reads the chain, and cost a third.
pragma solidity 0.8.37;

/// @notice What has one operator: a deposit factory.
interface IOperated {
    function operator() external view returns (address);
}

/// @notice Nobody owns it, and it holds nothing. For each factory it obeys that factory's operator alone, because whoever
/// verifies a receipt follows its transfer to the factory, and believes the keys that are registered for it.
contract ReceiptAnchor {
    /// @notice From here on receipts of the factory's deposits may be signed by the key with this thumbprint (RFC 7638).
    event Key(address indexed factory, bytes32 indexed thumbprint);

    /// @notice From here on the key is not to be believed: what it signed before is.
    event Revoked(address indexed factory, bytes32 indexed thumbprint);

    /// @notice The file of receipts with this Merkle root existed; `prevRoot` is of the file before it.
    event Anchored(address indexed factory, bytes32 indexed root, bytes32 prevRoot);

    /// @notice Refused because anybody could register a key of their own.
    error OnlyOperator();

    modifier onlyOperator(IOperated factory) {
        if (msg.sender != factory.operator()) revert OnlyOperator();
        _;
    }

    /// @notice Registers a key.
    function key(IOperated factory, bytes32 thumbprint) external onlyOperator(factory) {
        emit Key(address(factory), thumbprint);
    }

    /// @notice Revokes a key that was stolen.
    function revoke(IOperated factory, bytes32 thumbprint) external onlyOperator(factory) {
        emit Revoked(address(factory), thumbprint);
    }

    /// @notice Writes roots, each after the one before it; `prevRoot` is the last that was written before, or zero.
    function anchor(IOperated factory, bytes32 prevRoot, bytes32[] calldata roots) external onlyOperator(factory) {
        for (uint256 i; i < roots.length; ++i) {
            emit Anchored(address(factory), roots[i], prevRoot);
            prevRoot = roots[i];
        }
    }
}
