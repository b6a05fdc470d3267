// SPDX-License-Identifier: Apache-2.0
// The receiving address of one thing that is sold: holds tokens until the factory moves them or, later, anyone sends
// them to their owner. Every deposit is a clone of one implementation, so it costs little to put in place.
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @notice A deposit keeps no storage: its terms are in its own code, so nobody can set, change or replay them.
contract Deposit {
    using SafeERC20 for IERC20;

    /// @notice The factory that made the implementation, the only caller that may move tokens before `openAfter`.
    address public immutable factory;

    /// @dev The implementation's own address, to tell a call on it from a call through a clone.
    address private immutable self;

    /// @notice Refused because tokens leave a deposit only at the factory's word, which checks the operator.
    error OnlyFactory();

    /// @notice Refused because the implementation has no terms: read as such, its own code would name a random owner.
    error OnlyClone();

    /// @notice Refused because until `openAfter` (unix seconds) has passed the operator may still owe parts to others.
    error NotOpenYet(uint64 openAfter);

    constructor() {
        factory = msg.sender;
        self = address(this);
    }

    /// @notice Sends `amount` of `token` to `to` for the factory, because the operator knows who is owed what.
    function release(IERC20 token, address to, uint256 amount) external {
        if (msg.sender != factory) revert OnlyFactory();
        token.safeTransfer(to, amount);
    }

    /// @notice Sends all of `token` to the owner for anyone after `openAfter`, so that money outlives the service.
    function recover(IERC20 token) external {
        (address owner, uint64 openAfter) = terms();
        if (block.timestamp <= openAfter) revert NotOpenYet(openAfter);
        token.safeTransfer(owner, token.balanceOf(address(this)));
    }

    /// @notice The owner and the opening time (unix seconds), public so that anyone can check what an address promises.
    function terms() public view returns (address owner, uint64 openAfter) {
        if (address(this) == self) revert OnlyClone();
        bytes32 word = bytes32(Clones.fetchCloneArgs(address(this)));
        owner = address(bytes20(word));
        openAfter = uint64(bytes8(word << 160));
    }
}
