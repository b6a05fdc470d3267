// SPDX-License-Identifier: Apache-2.0
// A token that misbehaves while it is pulled: for tests that the escrow neither loses money to odd tokens nor believes them.
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

contract OddPaymentToken is ERC20("Odd", "ODD") {
    /// @notice Whether a tenth of each transfer stays with the token.
    bool public taxes;

    /// @notice What the token calls in the middle of its next transfer, and what came of it.
    address public target;
    bytes public data;
    bool public called;
    bytes public answer;

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function tax(bool taxes_) external {
        taxes = taxes_;
    }

    /// @notice Has the token call `target_` with `data_` in its next transfer, as a token that re-enters would.
    function interrupt(address target_, bytes calldata data_) external {
        (target, data, called) = (target_, data_, false);
    }

    /// @notice Calls as the token, so that it can be an operator itself.
    function act(address target_, bytes calldata data_) external {
        (bool success, bytes memory returned) = target_.call(data_);
        if (success) return;
        assembly {
            revert(add(returned, 32), mload(returned))
        }
    }

    /// @notice Moves anyone's tokens without a signature: here it is the escrow that is tested.
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256,
        uint256,
        bytes32,
        bytes calldata
    ) external {
        _transfer(from, to, value);
    }

    function _update(address from, address to, uint256 value) internal override {
        if (target != address(0) && from != address(0)) {
            address once = target;
            (target, called) = (address(0), true);
            (, answer) = once.call(data);
        }
        uint256 kept = taxes && from != address(0) && to != address(this) ? value / 10 : 0;
        if (kept > 0) super._update(from, address(this), kept);
        super._update(from, to, value - kept);
    }
}
