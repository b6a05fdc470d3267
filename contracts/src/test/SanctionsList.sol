// SPDX-License-Identifier: Apache-2.0
// A sanctions oracle with Chainalysis' interface, for local chains: its owner says who is on the list.
pragma solidity 0.8.37;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";

contract SanctionsList is Ownable(msg.sender) {
    mapping(address => bool) private listed;

    /// @notice Puts an address on the list, or takes it off.
    function setSanctioned(address account, bool value) external onlyOwner {
        listed[account] = value;
    }

    /// @notice Whether an address is on the list.
    function isSanctioned(address account) external view returns (bool) {
        return listed[account];
    }
}
