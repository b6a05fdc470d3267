// SPDX-License-Identifier: Apache-2.0
// A token that misbehaves: for tests that a deposit neither loses money to odd tokens nor believes them.
pragma solidity 0.8.37;

contract OddToken {
    /// @dev Silent answers nothing, as USDT does on Ethereum; Refusing answers false and moves nothing; Taxing keeps a
    /// tenth of each transfer.
    enum Manner {
        Silent,
        Refusing,
        Taxing
    }

    Manner public manner;
    mapping(address account => uint256) public balanceOf;

    /// @notice What the token calls in the middle of a transfer, and what came of it.
    address public target;
    bytes public data;
    bool public called;
    bool public succeeded;

    constructor(Manner manner_) {
        manner = manner_;
    }

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    /// @notice Has the token call `target_` with `data_` before its next transfer, as a token that re-enters would.
    function interrupt(address target_, bytes calldata data_) external {
        (target, data) = (target_, data_);
    }

    function transfer(address to, uint256 amount) external {
        if (target != address(0)) {
            address once = target;
            (target, called) = (address(0), true);
            (succeeded, ) = once.call(data);
        }
        if (manner == Manner.Refusing) {
            assembly {
                mstore(0, 0)
                return(0, 32)
            }
        }
        balanceOf[msg.sender] -= amount;
        balanceOf[to] += manner == Manner.Taxing ? amount - amount / 10 : amount;
    }
}
