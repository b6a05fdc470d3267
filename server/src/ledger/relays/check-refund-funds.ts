/**
 * Reads what refunds need from the wallet that pays them: an allowance and a balance. These values only explain why a
 * refund waits. The simulation of the refund's call decides whether it can succeed.
 */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { RpcCall, RpcResult } from "../../platform/chain/rpc.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { kindOf, kindsThat } from "../../platform/db/by-kind.ts"
import type { PayoutKind } from "../../platform/db/payout-kinds.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Payout, Verdict } from "../txmanager/lane.ts"
import { askEach } from "../txmanager/simulate-on-each.ts"

/** A wallet that pays refunds, and the contract that pulls the money. */
export interface Purse {
  token: Address
  owner: Address
  spender: Address
}

/** The allowance and balance of a purse, in base units. */
export interface Funds {
  allowance: bigint
  balance: bigint
}

/** How often a refund that waits for its merchant's wallet is checked: in its first hour, and later. */
const SOON_MS = 15_000
const LATER_MS = 60_000
const FIRST_MS = 3_600_000
/** How long a refund waits while another refund from the same wallet is under way. */
const TURN_MS = 3_000
/** The most refunds that one statement holds, because other calls wait for it. */
const ALIKE_AT_ONCE = 1_000

const call = ({ token: to }: Purse, data: `0x${string}`): RpcCall => ({
  method: "eth_call",
  params: [{ to, data }, "latest"],
})

/**
 * Reads each purse's balance and allowance at the head. Returns the lowest value of any endpoint, so that an endpoint
 * that lies or has stopped can't hide why a refund waits. The result is undefined for a purse that no endpoint reports.
 */
export async function readFunds(
  network: Network,
  purses: readonly Purse[],
  signal: AbortSignal,
): Promise<(Funds | undefined)[]> {
  if (purses.length === 0) return []
  const calls = purses.flatMap(purse => [
    call(purse, encodeFunctionData({ abi: erc20Abi, functionName: "allowance", args: [purse.owner, purse.spender] })),
    call(purse, encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [purse.owner] })),
  ])
  const answers = await askEach(network, calls, signal)
  return purses.map((_, i) => {
    const [allowance, balance] = [2 * i, 2 * i + 1].map(at => least(answers.map(results => wordOf(results?.[at]))))
    return allowance === undefined || balance === undefined ? undefined : { allowance, balance }
  })
}

const least = (reported: readonly (bigint | undefined)[]): bigint | undefined =>
  reported.reduce((a, b) => (a === undefined || (b !== undefined && b < a) ? b : a), undefined)

const wordOf = (result: RpcResult | undefined): bigint | undefined =>
  result?.ok && typeof result.value === "string" && /^0x[0-9a-f]{64}$/i.test(result.value)
    ? BigInt(result.value)
    : undefined

/**
 * Returns why and for how long a refund with a failing call is held. Undefined if the merchant's wallet is not the
 * reason.
 */
export async function whyUnfunded(ctx: Context, network: Network, refund: Payout): Promise<Verdict | undefined> {
  const purse = await purseOf(ctx, refund)
  const [funds] = purse ? await readFunds(network, [purse], ctx.signal) : []
  if (!funds) return undefined
  const isNew = ctx.now().getTime() - refund.created_at.getTime() < FIRST_MS
  const waitMs = isNew ? SOON_MS : LATER_MS
  if (funds.allowance < refund.amount)
    return { kind: "hold", reason: "allowance", detail: "the payout wallet allows less", waitMs }
  if (funds.balance < refund.amount)
    return { kind: "hold", reason: "balance", detail: "the payout wallet holds less", waitMs }
  return undefined
}

const pullsFromWallet = ({ moneyOf }: PayoutKind): boolean => moneyOf === "merchant"
const refundKinds = () => kindsThat(pullsFromWallet)

/** Whether a call takes money out of its merchant's wallet. */
export const isRefund = (payout: Pick<Payout, "kind">): boolean => pullsFromWallet(kindOf(payout))

/** Returns the time of the first check of a refund that waits for its wallet. */
export const firstLook = (now: Date): Date => new Date(now.getTime() + SOON_MS)

async function purseOf(ctx: TxContext, { escrow_id: id }: Payout): Promise<Purse | undefined> {
  const escrow = await ctx.db.selectFrom("escrows").selectAll().where("session_id", "=", id).executeTakeFirst()
  if (!escrow?.refund_collector) return undefined
  return { token: escrow.token, owner: escrow.receiver, spender: escrow.refund_collector }
}

/**
 * Returns the ids of refunds that must wait for another refund with the same wallet and collector: a signed, unmined
 * refund, or an earlier refund among `payouts`. Two refunds at a time could both pass the simulation with an allowance
 * that only one of them can use.
 */
export async function refundsOutOfTurn(ctx: TxContext, payouts: readonly Payout[]): Promise<Set<string>> {
  const ids = payouts.filter(isRefund).map(({ id }) => id)
  const [first] = payouts
  if (ids.length === 0 || !first) return new Set()
  const { rows } = await sql<{ id: string }>`
    with purses as (select i.id, i.created_at, i.state, (e.token, e.receiver, e.refund_collector) as purse from payouts i
      join escrows e on e.session_id = i.escrow_id where i.id = any(${sqlArray("uuid", ids)})
        or (i.chain_id = ${first.chain_id} and i.kind in ${refundKinds()} and i.state = 'assigned'))
    select id from purses where id = any(${sqlArray("uuid", ids)}) and exists (select from purses o where o.purse = purses.purse
      and o.id <> purses.id and (o.state = 'assigned' or (o.created_at, o.id) < (purses.created_at, purses.id)))`.execute(
    ctx.db,
  )
  return new Set(rows.map(({ id }) => id))
}

/** The verdict on a refund that waits its turn. */
export const waitForTurn: Verdict = { kind: "wait", ms: TURN_MS }

/**
 * Holds, for the same reason, the due refunds from the same wallet that are at least as large as this one. If there is
 * too little money for this refund, there is too little for larger ones. Otherwise each refund would be simulated, and
 * a wallet may have thousands of them.
 */
export async function holdAlike(
  ctx: TxContext,
  refund: Payout,
  { reason, detail }: Extract<Verdict, { kind: "hold" }>,
): Promise<void> {
  const now = ctx.now()
  const isNew = sql`created_at > ${new Date(now.getTime() - FIRST_MS)}`
  // This time includes refunds that wait their turn.
  const soon = new Date(now.getTime() + TURN_MS)
  await sql`
    update payouts set state = 'held', held_reason = ${reason}, held_detail = ${detail}, checks = checks + 1, updated_at = ${now},
      run_at = case when ${isNew} then ${new Date(now.getTime() + SOON_MS)}::timestamptz else ${new Date(now.getTime() + LATER_MS)} end
    where id in (select i.id from payouts i join escrows e on e.session_id = i.escrow_id
        join escrows own on own.session_id = ${refund.escrow_id} and (own.token, own.receiver, own.refund_collector)
          = (e.token, e.receiver, e.refund_collector)
      where i.merchant_id = ${refund.merchant_id} and i.chain_id = ${refund.chain_id} and i.kind in ${refundKinds()}
        and i.state in ('queued', 'held') and i.run_at <= ${soon} and i.amount >= ${refund.amount}
      limit ${ALIKE_AT_ONCE} for no key update of i skip locked)`.execute(ctx.db)
}
