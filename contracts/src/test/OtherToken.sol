// SPDX-License-Identifier: Apache-2.0
// A token that nobody sells for: for tests of what happens when the wrong one arrives.
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

contract OtherToken is ERC20("Other", "OTH") {
    /// @notice Six decimals like USDC, so that only the token's address distinguishes the two.
    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// @notice Makes `amount` base units for `to`, by anyone, because it is worth nothing.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}
