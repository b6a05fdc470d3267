/**
 * Batches: one transaction of the relay wallet that submits several agents' authorizations of one merchant, through
 * `AuthorizationBatch`. A wallet may have 16 transactions in flight, which is eight a second with two-second blocks.
 * With 32 authorizations in each transaction, this is 256 authorizations a second, and each saves the base cost of a
 * transaction. A token accepts an authorization only once, no matter who submits it. So a failed call does not affect
 * the rest of its batch, and nothing is paid twice.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Hex } from "viem"
import { batchData, batchDeployment } from "../../platform/chain/authorization-batch.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { marked } from "../../platform/chain/release-call.ts"
import type { TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { isContractRelay } from "./check-total-budget.ts"
import type { Payout } from "./lane.ts"
import { gasOf } from "./unsigned-attempt.ts"

/**
 * The most calls in a batch. At 200,000 gas for each call, a batch stays below 2^24, the highest gas limit of a
 * transaction (EIP-7825).
 */
const MAX_IN_BATCH = 32
/**
 * The extra gas of a batch, rounded up: once for the transaction, and for each call's data and work in the contract.
 */
const BATCH_GAS = { once: 60_000n, each: 15_000n }
/** The most gas that a call adds to its batch beyond its own, because a batch has at least two calls. */
export const BATCH_GAS_OF_CALL = BATCH_GAS.once / 2n + BATCH_GAS.each
/**
 * Calls with a deadline nearer than this are batched only with calls whose deadlines are within {@link ALIKE_MS}. A
 * batch that misses its first deadline is emptied, so with a slow signer a payment could end long before its own
 * deadline. The alternative, a separate transaction for each call, took all of the wallet's slots in flight with 16
 * calls.
 */
const MIN_TIME_MS = 20_000
const ALIKE_MS = 5_000

/** Whether a call may share a transaction: a settlement signed by a key. */
const isBatchable = (payout: Payout): boolean =>
  kindOf(payout).isBatched === true && !isContractRelay(payout) && payout.to_address === payout.token

/** Returns a key that is equal for calls that may share a transaction. */
function companyOf({ now }: Pick<TxContext, "now">, { merchant_id, token, relay_by: by }: Payout): string {
  const deadline = by?.getTime() ?? 0
  const isSoon = deadline < now().getTime() + MIN_TIME_MS
  return [merchant_id, token, ...(isSoon ? [Math.floor(deadline / ALIKE_MS)] : [])].join(" ")
}

/**
 * Groups payouts into transactions, ordered by the first payout of each. Payouts that `mayShare` accepts share a
 * transaction if they have the same merchant and token and their deadlines allow it, but at most {@link MAX_IN_BATCH}.
 *
 * @example
 *   groupIntoTransactions(ctx, [settleOfA, captureOfA, settleOfA2, settleOfB])
 *   // [[settleOfA, settleOfA2], [captureOfA], [settleOfB]]
 */
export function groupIntoTransactions(
  ctx: Pick<TxContext, "now">,
  payouts: readonly Payout[],
  mayShare = isBatchable,
): [Payout, ...Payout[]][] {
  const transactions: [Payout, ...Payout[]][] = []
  const open = new Map<string, [Payout, ...Payout[]]>()
  for (const payout of payouts) {
    const key = mayShare(payout) ? companyOf(ctx, payout) : payout.id
    const batch = open.get(key)
    if (batch && batch.length < MAX_IN_BATCH) batch.push(payout)
    else {
      const transaction: [Payout, ...Payout[]] = [payout]
      transactions.push(transaction)
      open.set(key, transaction)
    }
  }
  return transactions
}

/** Returns the call that submits these payouts, which have one token. */
export function batchCall(payouts: readonly [Payout, ...Payout[]]): { to: Address; data: Hex; gas: bigint } {
  const [{ token }] = payouts
  const gasEach = payouts.map(gasOf).reduce((a, b) => (a > b ? a : b))
  const data = batchData(
    token,
    gasEach,
    payouts.map(each => each.data),
  )
  const { once, each } = BATCH_GAS
  return { to: batchDeployment.address, data, gas: once + (gasEach + each) * BigInt(payouts.length) }
}

/**
 * Writes a batch for each transaction with several payouts. Returns the rows that get a nonce, which are batches or
 * single payouts. Call this in the transaction that assigns the nonces and has locked the payouts.
 */
export async function writeBatches(
  ctx: TxContext,
  transactions: readonly (readonly [Payout, ...Payout[]])[],
): Promise<Payout[]> {
  const assigned: Payout[] = []
  for (const payouts of transactions)
    assigned.push(payouts.length === 1 ? payouts[0] : await writeBatch(ctx, randomUUID(), payouts))
  return assigned
}

/** Writes a batch with this id, moves the payouts into it, and returns its queued row. */
export async function writeBatch(
  ctx: TxContext,
  id: string,
  payouts: readonly [Payout, ...Payout[]],
  { to, data, gas } = batchCall(payouts),
): Promise<Payout> {
  const [{ chain_id, merchant_id, token }] = payouts
  const now = ctx.now()
  const batch = await ctx.db
    .insertInto("payouts")
    .values({
      id,
      chain_id,
      merchant_id,
      token,
      kind: "batch",
      source_key: `batch:${id}`,
      recipient: to,
      to_address: to,
      data: marked(data, id),
      gas,
      reserved: false,
      state: "queued",
      amount: payouts.reduce((sum, { amount }) => sum + amount, 0n),
      relay_by: new Date(Math.min(...payouts.map(({ relay_by: by }) => by?.getTime() ?? 0))),
      run_at: now,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  const ids = payouts.map(payout => payout.id)
  await sql`/* named: fill_batch */ update payouts set batch_id = ${id}, state = 'assigned', held_reason = null,
    held_detail = null, updated_at = ${now} where id = any(${sqlArray("uuid", ids)})`.execute(ctx.db)
  return batch
}
