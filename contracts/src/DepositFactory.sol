// SPDX-License-Identifier: Apache-2.0
// Names deposit addresses before they exist, puts a deposit in place the first time money must leave it, and lets the
// operator alone decide where that money goes.
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {Deposit} from "./Deposit.sol";

/// @notice No function is payable and nothing is stored, so `multicall` can neither spend a value twice nor re-enter.
contract DepositFactory is Multicall {
    /// @notice The one account that may release, immutable so that no upgrade or vote can hand the deposits to another.
    address public immutable operator;

    /// @notice The code behind every deposit, made here so that its address follows from the factory's own.
    address public immutable implementation;

    /// @notice Refused because only the operator's books say who is owed what.
    error OnlyOperator();

    /// @notice Refused because a factory without an operator would hold every payment until it opens.
    error NoOperator();

    constructor(address operator_) {
        if (operator_ == address(0)) revert NoOperator();
        operator = operator_;
        implementation = address(new Deposit());
    }

    /// @notice Moves `amount` of `token` from a deposit to `to`, putting the deposit in place if this is its first time.
    function release(bytes32 salt, address owner, uint64 openAfter, IERC20 token, address to, uint256 amount) external {
        if (msg.sender != operator) revert OnlyOperator();
        _deposit(salt, owner, openAfter).release(token, to, amount);
    }

    /// @notice Recovers a deposit that may not be in place yet, for anyone, so that nobody needs the operator for it.
    function recover(bytes32 salt, address owner, uint64 openAfter, IERC20 token) external {
        _deposit(salt, owner, openAfter).recover(token);
    }

    /// @notice Where the deposit of these terms is or will be; other terms under the same salt give another address,
    /// because CREATE2 hashes the terms as a part of the deposit's code.
    function addressOf(bytes32 salt, address owner, uint64 openAfter) public view returns (address) {
        return
            Clones.predictDeterministicAddressWithImmutableArgs(
                implementation,
                abi.encodePacked(owner, openAfter),
                salt
            );
    }

    /// @dev Packed to 28 bytes, as each byte of a deposit's code costs 200 gas; both parts have a fixed length, so no
    /// two terms pack alike.
    function _deposit(bytes32 salt, address owner, uint64 openAfter) private returns (Deposit) {
        address deposit = addressOf(salt, owner, openAfter);
        if (deposit.code.length == 0) {
            Clones.cloneDeterministicWithImmutableArgs(implementation, abi.encodePacked(owner, openAfter), salt);
        }
        return Deposit(deposit);
    }
}
