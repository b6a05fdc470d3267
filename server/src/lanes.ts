/** The lanes of the payout engine: each has its own wallet, loop and places in flight on every network. */

import { payoutAlarms } from "./ledger/payouts/payout-alarms.ts"
import { payoutLane } from "./ledger/payouts/payout-lane.ts"
import { escrowAlarms } from "./ledger/relays/escrow-alarms.ts"
import { relayLane } from "./ledger/relays/relay-lane.ts"
import type { WaitingAlarm } from "./ledger/txmanager/all-alarms.ts"
import type { Lane } from "./ledger/txmanager/lane.ts"
import type { Network } from "./platform/chain/networks.ts"
import type { Settings } from "./platform/config/settings.ts"

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
