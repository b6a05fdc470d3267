/** Reads refunds for their merchant, and computes the allowance that a wallet's open refunds need. */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import { type Purse, readFunds } from "../../ledger/relays/check-refund-funds.ts"
import { checksummed, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { messageOf, type RefundStatus, shownStatus } from "./refund.ts"

/** Selects refunds; `id`, `sessionId` and `status` narrow the list. */
interface Which {
  merchantId: string
  id?: string | undefined
  sessionId?: string | undefined
  status?: RefundStatus | undefined
}

/**
 * SQL: whether a refund waits for an allowance while another refund from its wallet is about to be mined. The other
 * refund's amount is already allowed, so a sum approved in the meantime would be too high.
 */
const isBehind = sql<boolean>`(payouts.state = 'held' and payouts.held_reason = 'allowance' and exists (
  select from payouts o join escrows f on f.session_id = o.escrow_id
  where o.kind = 'refund' and o.state in ('queued', 'assigned') and (f.chain_id, f.token, f.receiver, f.refund_collector)
    = (escrows.chain_id, escrows.token, escrows.receiver, escrows.refund_collector)))`
/** SQL: whether this service can still call the escrow of a refund. */
const isOurs = ({ settings }: TxContext) => sql<boolean>`(escrows.operator = ${settings.relayWallet ?? ZERO_ADDRESS})`
const needsApproval = (ctx: TxContext) =>
  sql<boolean>`(payouts.state = 'held' and payouts.held_reason = 'allowance' and ${isOurs(ctx)} and not ${isBehind})`

/** Returns a query for the refunds of all merchants, with their calls. */
export const selectRefunds = (ctx: TxContext) =>
  ctx.db
    .selectFrom("refunds")
    .innerJoin("payouts", "payouts.id", "refunds.payout_id")
    .innerJoin("escrows", "escrows.session_id", "refunds.session_id")
    .selectAll("refunds")
    .select(["payouts.state", "payouts.held_reason", "payouts.held_detail", "payouts.tx_hash", "payouts.recipient"])
    .select(["escrows.chain_id", "escrows.token", "escrows.receiver", "escrows.refund_collector"])
    .select([isBehind.as("behind"), isOurs(ctx).as("ours")])

/** Returns a query for a merchant's refunds with their calls, without an order. */
export function refundsWhere(ctx: TxContext, { merchantId, id, sessionId, status }: Which) {
  const stored = status === "needs_approval" ? "pending" : status
  return selectRefunds(ctx)
    .where("refunds.merchant_id", "=", merchantId)
    .$if(id !== undefined, query => query.where("refunds.id", "=", id ?? ""))
    .$if(sessionId !== undefined, query => query.where("refunds.session_id", "=", sessionId ?? ""))
    .$if(stored !== undefined, query => query.where("refunds.status", "=", stored ?? "pending"))
    .$if(status === "needs_approval", query => query.where(needsApproval(ctx)))
    .$if(status === "pending", query => query.where(eb => eb.not(needsApproval(ctx))))
}

type RefundRow = Awaited<ReturnType<ReturnType<typeof refundsWhere>["execute"]>>[number]

/** The allowances that wallets gave, by {@link keyOf}. A wallet has no entry if no endpoint reports its allowance. */
export type Allowances = ReadonlyMap<string, bigint>

/** Returns the key of the wallet, token and spender that pay a refund. */
export const keyOf = (chainId: number, { token, owner, spender }: Purse): string =>
  [chainId, token, owner, spender].join("/")

const purseOf = ({ token, receiver: owner, refund_collector: spender }: RefundRow): Purse => ({
  token,
  owner,
  // Refunds are made only if a spender exists.
  spender: spender ?? ZERO_ADDRESS,
})

/** Returns refunds in the API's form. Those that need an approval include the current on-chain allowance. */
export async function refundsShown(ctx: Context, rows: readonly RefundRow[]) {
  const waiting = rows.filter(row => shownStatus(row.status, row) === "needs_approval")
  const allowances = new Map<string, bigint>()
  for (const [chainId, of] of Map.groupBy(waiting, row => row.chain_id)) {
    const purses = [...new Map(of.map(row => [keyOf(chainId, purseOf(row)), purseOf(row)])).values()]
    const funds = await readFunds(networkOf(ctx.chain, chainId), purses, ctx.signal)
    for (const [i, purse] of purses.entries()) {
      const allowance = funds[i]?.allowance
      if (allowance !== undefined) allowances.set(keyOf(chainId, purse), allowance)
    }
  }
  return await refundsWith(ctx, rows, allowances)
}

/** Returns refunds in the API's form. If `allowances` are given, each refund says which approval it needs. */
export async function refundsWith(ctx: TxContext, rows: readonly RefundRow[], allowances: Allowances | undefined) {
  const shown = []
  const needed = new Map<string, bigint>()
  for (const row of rows) {
    const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
    const status = shownStatus(row.status, row)
    shown.push({
      refundId: row.id,
      sessionId: row.session_id,
      amount: formatAmount(row.amount, token.decimals),
      currency: token.symbol,
      chain,
      status,
      reason: row.reason,
      message: messageOf(row.status, row),
      recipient: checksummed(row.recipient),
      txHash: row.tx_hash,
      approval: allowances && status === "needs_approval" ? await approvalOf(ctx, row, allowances, needed) : null,
      createdAt: row.created_at.toISOString(),
      updatedAt: row.updated_at.toISOString(),
    })
  }
  return shown
}

/** `known`: the allowances that purses need, by key, so that each is read once. */
async function approvalOf(ctx: TxContext, row: RefundRow, allowances: Allowances, known: Map<string, bigint>) {
  const purse = purseOf(row)
  const key = keyOf(row.chain_id, purse)
  const needed = known.get(key) ?? (await neededOf(ctx, { merchantId: row.merchant_id, chainId: row.chain_id }, purse))
  known.set(key, needed)
  const { decimals } = networkOf(ctx.chain, row.chain_id).token
  const allowance = allowances.get(key)
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "approve", args: [purse.spender, needed] })
  return {
    owner: checksummed(purse.owner),
    token: checksummed(purse.token),
    spender: checksummed(purse.spender),
    allowance: allowance === undefined ? null : formatAmount(allowance, decimals),
    needed: formatAmount(needed, decimals),
    call: { to: checksummed(purse.token), data },
  }
}

/** Returns the allowance that a wallet needs for all of a merchant's unmined refunds, in base units. */
export async function neededOf(
  ctx: TxContext,
  { merchantId, chainId }: { merchantId: string; chainId: number },
  { token, owner, spender }: Purse,
): Promise<bigint> {
  const { rows } = await sql<{ sum: bigint }>`
    select coalesce(sum(p.amount), 0)::numeric(78,0) as sum from payouts p join escrows e on e.session_id = p.escrow_id
    where p.kind = 'refund' and p.state in ('queued', 'held', 'assigned') and e.merchant_id = ${merchantId} and e.chain_id = ${chainId}
      and e.token = ${token} and e.receiver = ${owner} and e.refund_collector = ${spender}`.execute(ctx.db)
  return rows[0]?.sum ?? 0n
}

/** Returns the refunds of a session, newest first. */
export const refundsOfSession = async (
  ctx: Context,
  { id: sessionId, merchant_id: merchantId }: Pick<Row<"checkout_sessions">, "id" | "merchant_id">,
) => {
  const rows = await refundsWhere(ctx, { merchantId, sessionId })
    .orderBy("refunds.created_at", "desc")
    .orderBy("refunds.id", "desc")
    .execute()
  return await refundsShown(ctx, rows)
}
