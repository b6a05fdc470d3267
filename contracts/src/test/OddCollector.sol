// SPDX-License-Identifier: Apache-2.0
// A collector that makes any call instead of pulling, and can be the operator too: for tests that the escrow believes no
// collector.
pragma solidity 0.8.37;

import {ITokenCollector, PaymentInfo} from "../EscrowTypes.sol";

contract OddCollector is ITokenCollector {
    CollectorType public collectorType;

    /// @notice What the call that it made came to.
    bool public succeeded;
    bytes public answer;

    constructor(CollectorType collectorType_) {
        collectorType = collectorType_;
    }

    /// @notice Calls what `collectorData` says: an address, and the bytes to send there.
    function collectTokens(PaymentInfo calldata, address, uint256, bytes calldata collectorData) external {
        if (collectorData.length == 0) return;
        (address target, bytes memory data) = abi.decode(collectorData, (address, bytes));
        (succeeded, answer) = target.call(data);
    }

    /// @notice Calls as this contract, so that it can be an operator itself.
    function act(address target, bytes calldata data) external {
        (bool success, bytes memory returned) = target.call(data);
        if (success) return;
        assembly {
            revert(add(returned, 32), mload(returned))
        }
    }
}
