/** A client of the local chain, which can also set its state. */
import { createTestClient, http, publicActions, walletActions } from "viem"

export type ChainClient = ReturnType<typeof walletOn>

/** A client that reads from, sends to and controls the local chain. */
export const walletOn = (rpcUrl: string) =>
  createTestClient({ mode: "anvil", transport: http(rpcUrl), pollingInterval: 50, cacheTime: 0 })
    .extend(publicActions)
    .extend(walletActions)
