/** Raises alarms about money that is stuck in the escrow. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import type { WaitingAlarm } from "../txmanager/report-alarms.ts"

/** The alarm when the escrow holds payments that the current relay wallet can't move. */
const OTHER_OPERATOR =
  "the escrow holds payments that only an earlier relay wallet can move: the service can't capture or release them, and later only their payers can withdraw them. See docs/operators/alarms.md (other_operator)"
/** The alarm starts when this many captures, or voids, of one payment failed on chain. */
export const MAX_FAILED_CALLS = 3
/**
 * The alarm starts when this many rounds could not write a payment's outcome. The index `escrows_failing` uses the same
 * number.
 */
const MAX_FAILED_ROUNDS = 3
/** The alarm when reserved money can be neither captured nor released. */
const ESCROW_FAILED =
  "captures or releases of reserved money failed on chain three times, or the service failed three times to record the outcome of a reserved payment: see docs/operators/alarms.md (escrow_failed)"

/**
 * Returns the networks whose escrow holds money of checkouts that name another relay wallet. Only that wallet may call
 * the escrow for these checkouts.
 */
async function underOtherOperator(ctx: Context): Promise<Set<number>> {
  const { rows } = await sql<{ chain_id: number }>`select distinct chain_id from escrows
    where authorized > captured + voided + reclaimed and operator is distinct from ${ctx.settings.relayWallet ?? null}::text`.execute(
    ctx.db,
  )
  return new Set(rows.map(row => row.chain_id))
}

/**
 * Returns the networks where captures or releases of escrowed money failed too often, or where too many rounds failed
 * to record an escrow's outcome.
 */
async function withFailedCalls(ctx: Context): Promise<Set<number>> {
  const { rows } = await sql<{ chain_id: number }>`select distinct e.chain_id from escrows e
    join (select escrow_id from payouts where kind in ${kindsThat(kind => kind.moneyOf === "escrow")} and state = 'reverted'
      group by escrow_id, kind having count(*) >= ${MAX_FAILED_CALLS}) f on f.escrow_id = e.session_id
    where e.authorized > e.captured + e.voided + e.reclaimed
    union select chain_id from escrows where failed_rounds >= ${sql.lit(MAX_FAILED_ROUNDS)}`.execute(ctx.db)
  return new Set(rows.map(row => row.chain_id))
}

/** The alarms about escrows. */
export const escrowAlarms: readonly WaitingAlarm[] = [
  { reason: "other_operator", wallet: "relay", words: OTHER_OPERATOR, chainsWith: underOtherOperator },
  { reason: "escrow_failed", wallet: "relay", words: ESCROW_FAILED, chainsWith: withFailedCalls },
]
