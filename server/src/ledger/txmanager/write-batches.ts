/**
 * Batches: one transaction of the relay wallet that carries out several agents' authorizations of one merchant, through
 * `AuthorizationBatch`. A wallet may have 16 transactions in flight, which is eight a second with blocks of two seconds; with 32
 * authorizations in each it is 256, and each saves the base cost of a transaction. A token carries out an authorization
 * once, whoever submits it, so a call that fails in a batch fails alone and nothing is paid twice.
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
 * The most calls in a batch. With 200,000 gas for each they stay below 2^24, the most that a transaction may have
 * (EIP-7825).
 */
const MAX_IN_BATCH = 32
/** What a transaction costs in all, and what its data and the contract cost for each call, both in gas and rounded up. */
const BATCH_GAS = { once: 60_000n, each: 15_000n }
/** What a call adds to its batch's gas besides its own, at most: a batch has two calls at least. */
export const BATCH_GAS_OF_CALL = BATCH_GAS.once / 2n + BATCH_GAS.each
/**
 * Calls with a deadline nearer than this share a transaction only with calls whose deadlines are within
 * {@link ALIKE_MS} of theirs. A batch that is not sent by the first of its deadlines is emptied, and while a signer is slow
 * no payment shall end long before its own. Each of its own took all places of the wallet with 16 calls.
 */
const MIN_TIME_MS = 20_000
const ALIKE_MS = 5_000

/** Whether a call may share a transaction: a settlement that a key signed. */
const isBatchable = (payout: Payout): boolean =>
  kindOf(payout).isBatched === true && !isContractRelay(payout) && payout.to_address === payout.token

/** Identifies the calls that a call may share a transaction with. */
function companyOf({ now }: Pick<TxContext, "now">, { merchant_id, token, relay_by: by }: Payout): string {
  const deadline = by?.getTime() ?? 0
  const isSoon = deadline < now().getTime() + MIN_TIME_MS
  return [merchant_id, token, ...(isSoon ? [Math.floor(deadline / ALIKE_MS)] : [])].join(" ")
}

/**
 * Groups payouts into the transactions that would carry them out, in the order of the first of each. `mayShare` says
 * which may share one; those of one merchant and token do, {@link MAX_IN_BATCH} at most, if their deadlines allow it.
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

/** Returns the call that carries out these payouts, of one token. */
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
 * Writes a batch for each transaction of several payouts, and returns what gets a nonce: the batch, or the payout that is
 * alone. Call it in the transaction that gives the nonces and has locked the payouts.
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

/** Writes a batch with this id and moves the payouts into it; returns its row, queued. */
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
