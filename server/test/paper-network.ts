/** A network that is never asked. */
import { newEndpoint } from "../src/platform/chain/endpoints.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { Network } from "../src/platform/chain/networks.ts"

/** For tests that never look at the chain. */
export const paperNetwork: Network = {
  name: "base-sepolia",
  chainId: 84532,
  endpoints: [newEndpoint("base-sepolia", "http://127.0.0.1:1")],
  confirmations: 3n,
  token: { address: `0x${"70".repeat(20)}` as Address, symbol: "USDC", decimals: 6, name: "USDC", version: "2" },
  depositFactory: `0x${"fa".repeat(20)}` as Address,
  escrow: undefined,
  sanctionsOracle: undefined,
  genesisHash: `0x${"00".repeat(32)}` as Hash,
}
