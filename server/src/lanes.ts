/**
 * The lanes of the payout engine. Each has its own wallet, loop and limit of transactions in flight on every network.
 */
import { payoutLane } from "./ledger/payouts/payout-lane.ts"
import { relayLane } from "./ledger/relays/relay-lane.ts"
import type { Lane } from "./ledger/txmanager/lane.ts"
import type { Network } from "./platform/chain/networks.ts"
import type { Settings } from "./platform/config/settings.ts"

/** Returns the lanes of a network that have a key. A lane without a key signs nothing. */
export const lanesOf = (
  { payoutSigner, relaySigner }: Pick<Settings, "payoutSigner" | "relaySigner">,
  network: Network,
): Lane[] => [
  ...(payoutSigner ? [payoutLane(network, payoutSigner)] : []),
  ...(relaySigner ? [relayLane(network, relaySigner)] : []),
]
