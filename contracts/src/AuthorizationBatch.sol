// SPDX-License-Identifier: Apache-2.0
// Carries out several EIP-3009 authorizations of one token in one transaction, each with its own gas. Multicall3 gives a
// call all the gas that is left: a holder with code (a contract wallet, or a key that delegated to one by EIP-7702) is
// asked by the token whether it signed, and could burn the gas of everybody else's authorization.
pragma solidity 0.8.37;

/// @notice Nobody owns it, and it holds nothing. Anyone may call it: a token moves only what holders signed, whoever asks.
contract AuthorizationBatch {
    /// @dev What a call costs besides its own gas: the first access to the token's address, and some room.
    uint256 private constant CALL_COST = 5_000;

    /// @notice Refused because a call would get less gas than `gasEach`, and might fail for that alone.
    error TooLittleGas();

    /// @notice Calls `token` with each of `calls`, in order, with `gasEach` gas. One that fails does not stop the others.
    /// @return succeeded Whether each call succeeded. That a token without code or with other code "succeeds" proves
    /// nothing: the token's events do.
    function carryOut(address token, uint256 gasEach, bytes[] calldata calls)
        external
        returns (bool[] memory succeeded)
    {
        succeeded = new bool[](calls.length);
        for (uint256 i = 0; i < calls.length; i++) {
            bytes memory data = calls[i];
            // A call gets at most 63/64 of what is left (EIP-150).
            uint256 left = gasleft();
            if (left < CALL_COST || ((left - CALL_COST) * 63) / 64 < gasEach) revert TooLittleGas();
            bool ok;
            // What the call returns is not copied: it could be as long as its gas allows.
            assembly ("memory-safe") {
                ok := call(gasEach, token, 0, add(data, 32), mload(data), 0, 0)
            }
            succeeded[i] = ok;
        }
    }
}
