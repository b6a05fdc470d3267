/** Handles a buyer's requests at a paywall: submitting a hash, and reading the state of the submission. */
import { sql } from "kysely"
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { freshSubmission, verifySoon } from "../../ledger/scanner/queries.ts"
import { statusMessage, waitsForMerchant } from "../../ledger/scanner/submission-faults.ts"
import { scannedBlock } from "../../ledger/scanner/watch-scan-lag.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row, SubmissionStatus } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { traceparentNow } from "../../platform/tracing/trace.ts"
import { paidPaywall, paymentKey, paywallRow, seenPayment, submittedPayment } from "./queries.ts"

/** A paywall by its id, for anyone who has the id; throws `PAYWALL_NOT_FOUND`. */
export async function publicPaywall(ctx: TxContext, id: string): Promise<Row<"paywalls">> {
  const row = await paywallRow(ctx.db, id)
  if (!row) throw new ApiError("PAYWALL_NOT_FOUND")
  return row
}

/**
 * Stores the claim of `address` that it paid with `txHash`. Submitting the hash again changes nothing while it is
 * being verified, and has it verified again after a failure. Throws `ALREADY_VERIFIED` if all its payments here
 * granted access.
 */
export async function submitPayment(ctx: Context, paywallId: string, txHash: Hash, address: Address): Promise<void> {
  const paywall = await paidPaywall(ctx.db, { id: paywallId, now: ctx.now() })
  if (!paywall) throw new ApiError("PAYWALL_NOT_FOUND")
  const { chain_id: chainId, is_watch_ending: isWatchEnding } = paywall
  const { token } = networkOf(ctx.chain, chainId)
  await inTransaction(ctx, async ctx => {
    const now = ctx.now()
    const { status, message } = freshSubmission(now)
    const { rows } = await sql<{ is_granted: boolean }>`
      /* named: submit_payment */ with paid as (
        select coalesce(bool_and(coalesce(p.status = 'granted', false)), false) as is_granted
        from transfers t join deposits d on d.id = t.deposit_id
          left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
        where t.chain_id = ${chainId}::integer and t.tx_hash = ${txHash} and t.token = ${token.address} and d.resource_id = ${paywallId}),
      made as (
        insert into submissions (resource_id, chain_id, tx_hash, address, by_sender, status, reason, message, attempts, run_at,
          submitted_at, updated_at, traceparent)
        select ${paywallId}, ${chainId}::integer, ${txHash}, ${address}, true, ${status}, null, ${message}, 0,
          ${now}::timestamptz, ${now}::timestamptz, ${now}::timestamptz, ${traceparentNow(ctx)} from paid where not is_granted
        on conflict (resource_id, tx_hash, address) where by_sender do update set status = excluded.status,
          reason = excluded.reason, message = excluded.message, attempts = excluded.attempts, run_at = excluded.run_at,
          submitted_at = excluded.submitted_at, updated_at = excluded.updated_at, traceparent = excluded.traceparent
        where submissions.status in ('failed', 'reversed'))
      select is_granted from paid`.execute(ctx.db)
    if (rows[0]?.is_granted) throw new ApiError("ALREADY_VERIFIED")
  })
  if (isWatchEnding) await watch(ctx, paywallId)
  await verifySoon(ctx, chainId)
}

export interface PaymentState {
  status: SubmissionStatus
  reason: string | null
  message: string
  confirmations: number
  requiredConfirmations: number
}

/**
 * The state of a submission, or of a payment that nobody submitted; throws `PAYMENT_NOT_FOUND` if there is neither.
 * If the transaction has several transfers, a granted one decides.
 */
export async function paymentState(
  ctx: TxContext,
  paywallId: string,
  txHash: Hash,
  address: Address,
): Promise<PaymentState> {
  const { id, chain_id } = await publicPaywall(ctx, paywallId)
  const { confirmations: required } = networkOf(ctx.chain, chain_id)
  const key = paymentKey(id, txHash, address)
  const [submitted, seen, scanned] = await Promise.all([
    submittedPayment(ctx.db, key),
    seenPayment(ctx.db, key),
    scannedBlock(ctx.db, chain_id),
  ])
  const found = submitted ?? (seen && foundState(seen.status, seen.exception))
  if (!found) throw new ApiError("PAYMENT_NOT_FOUND")
  const blockNumber = seen?.block_number ?? submitted?.block_number
  const depth = blockNumber && scanned !== undefined ? scanned - blockNumber + 1n : 0n
  return {
    status: found.status,
    reason: found.reason,
    message: found.message,
    confirmations: Number(depth < 0n ? 0n : depth),
    requiredConfirmations: Number(required),
  }
}

/** The state of money that nobody submitted, taken from the payment that claims it. */
function foundState(
  status: Row<"payments">["status"] | null,
  exception: Row<"payments">["exception"] | null,
): Pick<PaymentState, "status" | "reason" | "message"> {
  if (status === "granted" || status === "reversed") return { status, reason: null, message: statusMessage[status] }
  if (status === "returned") return { status: "failed", reason: exception ?? null, message: statusMessage.returned }
  if (status === "open" && exception && exception in waitsForMerchant)
    return {
      status: "failed",
      reason: exception,
      message: waitsForMerchant[exception as keyof typeof waitsForMerchant],
    }
  return { status: "verifying", reason: null, message: statusMessage.unsubmitted }
}
