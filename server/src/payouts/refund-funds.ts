/**
 * What refunds need of the wallet that pays them: an allowance and a balance. Each is read to say why a refund waits; that it
 * can be carried out is for the simulation of its call to say.
 */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import { askAny } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { type RpcCall, RpcError, type RpcResult } from "../chain/rpc.ts"
import type { Context, TxContext } from "../context.ts"
import { sqlArray } from "../db/sql-array.ts"
import type { Payout, Verdict } from "./lane-policy.ts"

/** A wallet that pays refunds, and the contract that pulls them. */
export interface Purse {
  token: Address
  owner: Address
  spender: Address
}

/** In base units. */
export interface Funds {
  allowance: bigint
  balance: bigint
}

/** A refund that waits for its merchant is checked this often in its first hour, and each minute later. */
const SOON_MS = 15_000
const LATER_MS = 60_000
const FIRST_MS = 3_600_000
/** A refund whose wallet has another under way. */
const TURN_MS = 3_000

const call = ({ token: to }: Purse, data: `0x${string}`): RpcCall => ({
  method: "eth_call",
  params: [{ to, data }, "latest"],
})

/** What each purse holds and allows at the head; undefined for one that no endpoint reports. */
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
  const results = await askAny(network.endpoints, calls, signal).catch((error): RpcResult[] => {
    if (!(error instanceof RpcError) || signal.aborted) throw error
    return []
  })
  return purses.map((_, i) => {
    const [allowance, balance] = [wordOf(results[2 * i]), wordOf(results[2 * i + 1])]
    return allowance === undefined || balance === undefined ? undefined : { allowance, balance }
  })
}

const wordOf = (result: RpcResult | undefined): bigint | undefined =>
  result?.ok && typeof result.value === "string" && /^0x[0-9a-f]{64}$/i.test(result.value)
    ? BigInt(result.value)
    : undefined

/** Why a refund whose call fails waits, and for how long; undefined where its wallet is not the reason. */
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

/** When a refund that waits for its wallet is checked first. */
export const firstLook = (now: Date): Date => new Date(now.getTime() + SOON_MS)

async function purseOf(ctx: TxContext, { escrow_id: id }: Payout): Promise<Purse | undefined> {
  const escrow = await ctx.db.selectFrom("escrows").selectAll().where("session_id", "=", id).executeTakeFirst()
  if (!escrow?.refund_collector) return undefined
  return { token: escrow.token, owner: escrow.receiver, spender: escrow.refund_collector }
}

/**
 * The ids of refunds that wait for another of the same wallet: one that is signed and not mined, or one of these before it. Two
 * at once could each be simulated with the allowance that only one can use.
 */
export async function refundsOutOfTurn(ctx: TxContext, payouts: readonly Payout[]): Promise<Set<string>> {
  const ids = payouts.flatMap(({ id, kind }) => (kind === "refund" ? [id] : []))
  if (ids.length === 0) return new Set()
  const among = sql`any(${sqlArray("uuid", ids)})`
  const { rows } = await sql<{ id: string }>`
    select i.id from payouts i join escrows e on e.session_id = i.escrow_id
    where i.id = ${among} and exists (select from payouts o join escrows f on f.session_id = o.escrow_id
      where o.kind = 'refund' and o.id <> i.id and (f.chain_id, f.token, f.receiver) = (e.chain_id, e.token, e.receiver)
        and (o.state = 'assigned'
          or (o.id = ${among} and (o.created_at, o.id) < (i.created_at, i.id))))`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

/** The verdict on a refund that waits for its turn. */
export const waitForTurn: Verdict = { kind: "wait", ms: TURN_MS }
