// SPDX-License-Identifier: Apache-2.0
// A wallet that is a contract (ERC-1271): for tests of signatures that no key of the payer's own address made.
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

contract ContractWallet is IERC1271 {
    address public immutable signer;

    /// @notice Hashes that were approved by a transaction, as a multisig's owners do: their signature is empty.
    mapping(bytes32 hash => bool) public isApproved;

    constructor(address signer_) {
        signer = signer_;
    }

    /// @notice Approves a hash, for anyone: only tests decide what that means.
    function approve(bytes32 hash) external {
        isApproved[hash] = true;
    }

    /// @notice Holds for any hash that `signer` signed, the least a contract wallet does, and for what was approved.
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        bool isGood = isApproved[hash];
        if (signature.length > 0) {
            (address recovered, , ) = ECDSA.tryRecover(hash, signature);
            isGood = recovered == signer;
        }
        return isGood ? IERC1271.isValidSignature.selector : bytes4(0xffffffff);
    }
}
