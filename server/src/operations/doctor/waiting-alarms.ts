/** The alarms of all lanes that no round raises. */
import { payoutAlarms } from "../../ledger/payouts/payout-alarms.ts"
import { escrowAlarms } from "../../ledger/relays/escrow-alarms.ts"
import type { WaitingAlarm } from "../../ledger/txmanager/all-alarms.ts"

export const waitingAlarms: readonly WaitingAlarm[] = [...payoutAlarms, ...escrowAlarms]
