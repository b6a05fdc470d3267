/**
 * Assigns nonces. Under the wallet's lock, one transaction writes the nonces and everything that will be signed with
 * them, so there is never a gap. Signing happens after the commit. Payouts that get no nonce get a verdict, which is
 * also applied after the commit.
 */
import { sql } from "kysely"
import type { Fees } from "../../platform/chain/fees.ts"
import { dataParts } from "../../platform/chain/wallet-state.ts"
import type { TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { lockBudgets } from "./check-gas-budget.ts"
import { isContractRelay, lockTotals } from "./check-total-budget.ts"
import { type InFlight, inFlight } from "./count-in-flight.ts"
import { lowGas } from "./hold-payouts.ts"
import type { Judged, LaneInfo, Payout, Verdict } from "./lane.ts"
import { toSign, type Unsigned } from "./load-unsigned-attempts.ts"
import { lockWallet } from "./lock-wallet.ts"
import { gasOf, type UnsignedRow, unsignedAttempt } from "./unsigned-attempt.ts"
import { BATCH_GAS_OF_CALL, groupIntoTransactions, writeBatches } from "./write-batches.ts"

/** How many unmined transactions a wallet may have, because nodes keep few transactions per sender. */
export const MAX_IN_FLIGHT = 16
const DETAIL_LENGTH = 200

/** How long a call waits for the actual cost of calls in flight, which is about a block. */
const IN_FLIGHT_WAIT_MS = 2_000

/** The wallet's state, which was read before the lock, and the fees to bid. */
interface WalletReading {
  fees: Fees
  /** How many nonces the chain or its mempool has used. */
  count: bigint
  /** In wei. */
  balance: bigint
  /** The highest data fee of an ordinary transaction, in wei. */
  dataFee: bigint
}

interface Given {
  /** The rows to sign after the commit. */
  assigned: Unsigned[]
  /** The verdicts on approved payouts that get no nonce. */
  judged: Judged[]
}

/**
 * SQL: whether a payout may be signed: its money is reserved in its deposit's book, or it moves no deposit's money, or
 * it is a relay before its deadline.
 */
export const isSignable = (ctx: TxContext) =>
  sql<boolean>`(reserved or kind in ('anchor', 'store') or relay_by > ${ctx.now()})`

/**
 * Assigns nonces to approved payouts that may still be paid, while gas, budgets and the wallet's in-flight limit have
 * room. Payouts that were simulated in a batch share the nonce of that batch. Call this inside a transaction.
 */
export async function giveNonces(
  ctx: TxContext,
  lane: LaneInfo,
  { id: walletId }: Row<"wallets">,
  approved: readonly Judged[],
  terms: WalletReading,
): Promise<Given> {
  const wallet = await lockWallet(ctx, walletId)
  if (!maySign(ctx, wallet, terms.count)) return { assigned: [], judged: [] }
  const flying = await inFlight(ctx, wallet)
  const room = Math.max(0, MAX_IN_FLIGHT - flying.n)
  const locked = await lockPayouts(
    ctx,
    approved.map(({ payout }) => payout.id),
  )
  const short = locked.flatMap(row => (row.backed ? [] : [{ payout: row, verdict: { kind: "short" } as const }]))
  const batched = new Set(approved.flatMap(({ payout, verdict }) => ("inBatch" in verdict ? [payout.id] : [])))
  const mayShare = ({ id }: Payout) => batched.has(id)
  // Keeps the order of approval, where payouts that succeeded in a batch come first. Payouts that failed in a batch but
  // succeed alone follow, because each needs a separate transaction.
  const byId = new Map(locked.map(row => [row.id, row]))
  const backed = approved.flatMap(({ payout: { id } }) => byId.get(id) ?? []).filter(row => row.backed)
  // A payout for which there is no room in flight takes nothing from a budget.
  const fitting = groupIntoTransactions(ctx, backed, mayShare).slice(0, room)
  const payouts = fitting.flat()
  const altered = await alteredOf(ctx, lane, payouts)
  const isAltered = new Set(altered.map(({ payout }) => payout.id))
  const sound = payouts.filter(({ id }) => !isAltered.has(id))
  const judged = [...short, ...altered, ...(await fitBudgets(ctx, lane, wallet, sound, mayShare, flying, terms))]
  const funded = judged.flatMap(({ payout, verdict }) => (verdict.kind === "sign" ? [payout] : []))
  const isFunded = new Set(funded.map(({ id }) => id))
  // Keeps the groups of payouts. While the budgets were locked, the deadlines came nearer, so grouping again would make
  // more transactions than fit.
  const transactions = fitting.flatMap(each => {
    const [first, ...rest] = each.filter(({ id }) => isFunded.has(id))
    return first ? [[first, ...rest] as const] : []
  })
  const assigned = await assignAll(ctx, wallet, await writeBatches(ctx, transactions), terms)
  return { assigned, judged: judged.filter(({ verdict }) => verdict.kind !== "sign") }
}

/**
 * Returns the payouts whose calldata does not match their rows and their deposits' terms, because someone edited one of
 * these manually.
 */
async function alteredOf(ctx: TxContext, lane: LaneInfo, payouts: readonly Payout[]): Promise<Judged[]> {
  if (payouts.length === 0) return []
  // Checks only the calldata, because that is what will be signed. The trigger `payouts_keep_promises` ensures that a
  // payout never gives up its nonce. Without that trigger, the chaos test must catch the engine's mistakes.
  const faultOf = await lane.calldataFaults(
    ctx,
    payouts.map(({ id }) => id),
  )
  return payouts.flatMap(payout => {
    const detail = faultOf(payout.id)
    if (detail === undefined) return []
    ctx.log.error({ payoutId: payout.id, reason: detail }, "a payout was altered by hand; it is not signed")
    return [
      {
        payout,
        verdict: { kind: "hold", reason: "simulation", detail: `was altered: ${detail}`.slice(0, DETAIL_LENGTH) },
      },
    ]
  })
}

/**
 * Whether the wallet is active, and every nonce that the chain has was signed here. The count was read before the lock,
 * and `next_nonce` only grows. So if the count is higher, a transaction was signed elsewhere. Pending transactions
 * count too: if the database lost its last seconds of changes, one of them may pay a payout that looks unpaid here.
 */
const maySign = (ctx: TxContext, wallet: Row<"wallets">, count: bigint): boolean =>
  wallet.status === "active" && !isAhead(ctx, wallet, count)

/** Whether the chain has nonces of a wallet that this database does not know. Logs this as an error. */
export function isAhead(ctx: TxContext, { next_nonce: next }: Row<"wallets">, count: bigint): boolean {
  if (count <= next) return false
  ctx.log.error({ count: `${count}`, next: `${next}` }, "on-chain nonce exceeds next_nonce; refusing to sign")
  return true
}

/**
 * Locks the payouts that have no nonce, and reads whether the money of each is there, because a reorg may remove it at
 * any time.
 */
const lockPayouts = (ctx: TxContext, ids: readonly string[]): Promise<(Payout & { backed: boolean })[]> =>
  ctx.db
    .selectFrom("payouts")
    .selectAll()
    .select(sql<boolean>`has_money(payouts)`.as("backed"))
    .where("id", "in", ids)
    .where("state", "in", ["queued", "held"])
    .where(isSignable(ctx))
    .orderBy("created_at")
    .orderBy("id")
    .forNoKeyUpdate()
    .skipLocked()
    .execute()

/** Takes each payout's gas from the wallet's balance and from the budgets, in order, until these are used up. */
async function fitBudgets(
  ctx: TxContext,
  lane: LaneInfo,
  wallet: Row<"wallets">,
  payouts: readonly Payout[],
  mayShare: (payout: Payout) => boolean,
  flying: InFlight,
  { fees, balance, dataFee }: WalletReading,
): Promise<Judged[]> {
  const merchants = payouts.map(payout => payout.merchant_id)
  const budgets = await lockBudgets(ctx, merchants)
  const withContracts = lane.callsContractWallets && payouts.some(isContractRelay)
  const totals = await lockTotals(ctx, wallet, payouts, withContracts)
  // Payouts that were paid in another way since the simulation. The next turn cancels these payouts.
  const outdated = await lane.outdated(ctx, payouts)
  const before = balance - flying.wei - flying.parts * dataFee
  let wei = before
  const judge = (payout: Payout): Verdict => {
    if (outdated.has(payout.id)) return { kind: "skip" }
    const gas = gasOf(payout) + (mayShare(payout) ? BATCH_GAS_OF_CALL : 0n)
    const most = gas * fees.maxFee + dataParts(payout.data) * dataFee
    if (wei < most + payout.value) return lowGas(wallet)
    if (!totals.holds(payout, most)) return unlessBusy(lane.overTotal(payout), flying.n > 0 || wei < before)
    if (!budgets.take(payout, most)) return unlessBusy(lane.overBudget(payout), budgets.isBusy(payout.merchant_id))
    totals.take(payout, most)
    wei -= most + payout.value
    return { kind: "sign" }
  }
  return payouts.map(payout => ({ payout, verdict: judge(payout) }))
}

/**
 * Payouts in flight count at their highest cost, many times the actual one. That alone must not cancel a call, so the
 * call waits until the actual cost is known.
 */
const unlessBusy = (verdict: Verdict, isBusy: boolean): Verdict =>
  isBusy && verdict.kind === "cancel" ? { kind: "wait", ms: IN_FLIGHT_WAIT_MS } : verdict

/**
 * Assigns the wallet's next nonces to payouts. One statement writes the nonces, the unsigned attempts and the wallet's
 * next nonce. Returns what to sign.
 */
async function assignAll(
  ctx: TxContext,
  wallet: Row<"wallets">,
  payouts: readonly Payout[],
  { fees, dataFee }: WalletReading,
): Promise<Unsigned[]> {
  if (payouts.length === 0) return []
  const attempts: UnsignedRow[] = []
  let nonce = wallet.next_nonce
  for (const payout of payouts) {
    const call = { ...payout, wallet: wallet.address, nonce }
    const terms = { n: 0, gas: gasOf(payout), dataFee: dataParts(payout.data) * dataFee, ...fees }
    attempts.push(unsignedAttempt(call, terms))
    nonce++
  }
  const given = attempts.map(({ payout_id: id, unsigned_hash, ...each }) => ({
    id,
    unsigned_hash,
    nonce: `${each.nonce}`,
    gas: `${each.gas}`,
    max_fee: `${each.max_fee}`,
    tip: `${each.tip}`,
    data_fee: `${each.data_fee}`,
  }))
  const { rows } = await sql<{ id: bigint; payout_id: string }>`
    /* named: give_nonces */ with given as (${rowsParameter(given, "id uuid, nonce bigint, gas bigint, max_fee numeric, tip numeric, data_fee numeric, unsigned_hash text")}),
      assigned as (update payouts i set state = 'assigned', held_reason = null, held_detail = null, wallet = ${wallet.address},
        nonce = given.nonce, updated_at = ${ctx.now()} from given where i.id = given.id),
      next as (update wallets set next_nonce = ${nonce} where id = ${wallet.id})
    insert into transaction_attempts (payout_id, chain_id, wallet, nonce, n, gas, max_fee, tip, data_fee, unsigned_hash)
      select id, ${wallet.chain_id}::int, ${wallet.address}, nonce, 0, gas, max_fee, tip, data_fee, unsigned_hash from given order by nonce
    returning id, payout_id`.execute(ctx.db)
  const idOf = new Map(rows.map(row => [row.payout_id, row.id]))
  return payouts.flatMap((payout, i) => {
    const id = idOf.get(payout.id)
    const attempt = attempts[i]
    return id !== undefined && attempt ? [toSign({ ...attempt, id }, payout)] : []
  })
}
