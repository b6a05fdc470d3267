/** The alarms of all lanes that no round raises. */
import { payoutAlarms } from "../../ledger/payouts/find-payout-alarms.ts"
import { escrowAlarms } from "../../ledger/relays/find-escrow-alarms.ts"
import type { WaitingAlarm } from "../../ledger/txmanager/report-alarms.ts"

export const waitingAlarms: readonly WaitingAlarm[] = [...payoutAlarms, ...escrowAlarms]
