/** The lanes of the payout engine: each has its own wallet, loop and places in flight on every network. */
import type { Network } from "./chain/networks.ts"
import type { Settings } from "./config/settings.ts"
import { payoutAlarms } from "./payouts/payout-alarms.ts"
import { payoutLane } from "./payouts/payout-lane.ts"
import { escrowAlarms } from "./relays/escrow-alarms.ts"
import { relayLane } from "./relays/relay-lane.ts"
import type { WaitingAlarm } from "./txmanager/all-alarms.ts"
import type { Lane } from "./txmanager/lane.ts"

/** Returns the lanes of a network that have a key. The others sign nothing. */
export const lanesOf = (
  { payoutSigner, relaySigner }: Pick<Settings, "payoutSigner" | "relaySigner">,
  network: Network,
): Lane[] => [
  ...(payoutSigner ? [payoutLane(network, payoutSigner)] : []),
  ...(relaySigner ? [relayLane(network, relaySigner)] : []),
]

/** The alarms of all lanes that no round raises. */
export const waitingAlarms: readonly WaitingAlarm[] = [...payoutAlarms, ...escrowAlarms]
