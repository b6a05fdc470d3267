// SPDX-License-Identifier: Apache-2.0
// A wallet that is a contract (ERC-1271): for tests of signatures that no key of the payer's own address made.
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

contract ContractWallet is IERC1271 {
    address public immutable signer;

    constructor(address signer_) {
        signer = signer_;
    }

    /// @notice Holds for any hash that `signer` signed, the least a contract wallet does.
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        (address recovered, , ) = ECDSA.tryRecover(hash, signature);
        return recovered == signer ? IERC1271.isValidSignature.selector : bytes4(0xffffffff);
    }
}
