/** Makes refunds. Each is a row, and an escrow call that is held until the merchant's wallet allows the refund. */
import { type Funds, firstLook, type Purse, readFunds } from "../../ledger/relays/check-refund-funds.ts"
import { OTHER_OWNER, refundOwners } from "../../ledger/relays/find-refund-owners.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { newId } from "../../platform/ids.ts"
import { formatAmount, readAmount } from "../../platform/money/amount.ts"
import { type CurrentEscrow, lockEscrow, standingOfEscrow } from "./load-escrow.ts"
import { insertCall, limitOf, MIN_TIME_MS } from "./make-calls.ts"
import { NOT_ESCROW, NOT_OURS, notCaptured, REMADE, refundable } from "./refund.ts"
import { keyOf, neededOf, refundsWhere, refundsWith } from "./refund-queries.ts"
import type { RefundCreate } from "./refund-schema.ts"
import { lostRefund } from "./remake-refund.ts"

/** A captured escrow whose refunds this installation can make. */
type Refundable = Row<"escrows"> & { payer: Address; refund_collector: Address }

const purseOf = ({ token, receiver: owner, refund_collector: spender }: Refundable): Purse => ({
  token,
  owner,
  spender,
})

/**
 * Reads the allowance and balance of the wallet that pays a refund. Undefined if no endpoint responds, because both
 * are checked later anyway. Throws `SESSION_NOT_FOUND`, or `INVALID_OPERATION` if no amount at all can be refunded.
 */
export async function prepareRefund(
  ctx: Context,
  merchantId: string,
  { sessionId }: RefundCreate,
): Promise<Funds | undefined> {
  const session = await ctx.db
    .selectFrom("checkout_sessions")
    .leftJoin("escrows", "escrows.session_id", "checkout_sessions.id")
    .selectAll("escrows")
    .select("checkout_sessions.status")
    .where("checkout_sessions.id", "=", sessionId)
    .where("checkout_sessions.merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!session) throw new ApiError("SESSION_NOT_FOUND")
  if (session.session_id === null) throw refused(NOT_ESCROW)
  const escrow = refundableOf(ctx, session as Row<"escrows">, session.status)
  const [funds] = await readFunds(networkOf(ctx.chain, escrow.chain_id), [purseOf(escrow)], ctx.signal)
  return funds
}

function refundableOf(ctx: TxContext, escrow: Row<"escrows">, status: Row<"checkout_sessions">["status"]): Refundable {
  const { payer, refund_collector, operator } = escrow
  if (!payer) throw refused(notCaptured(status))
  if (!refund_collector || operator !== ctx.settings.relayWallet) throw refused(NOT_OURS)
  return { ...escrow, payer, refund_collector }
}

const refused = (words: string): ApiError => new ApiError("INVALID_OPERATION", undefined, words)

/**
 * Makes a refund and returns it as its merchant sees it, with the allowance that it needs if the current one is too
 * low. Must be called inside a transaction. Throws `VALIDATION_ERROR` for an invalid amount, and `INVALID_OPERATION`
 * if the amount is more than what is left, or if nothing is left.
 */
export async function makeRefund(ctx: TxContext, merchantId: string, body: RefundCreate, funds: Funds | undefined) {
  const escrowed = await lockEscrow(ctx, body.sessionId)
  if (escrowed?.session.merchant_id !== merchantId) throw new ApiError("SESSION_NOT_FOUND")
  const standing = await standingOfEscrow(ctx, escrowed)
  const { folded } = standing
  if (await lostRefund(ctx, standing)) throw refused(REMADE)
  const escrow = refundableOf(ctx, escrowed.escrow, folded.status)
  const { refund_expiry: expiry, chain_id: chainId } = escrow
  const refundBy = new Date(expiry.getTime() - MIN_TIME_MS)
  const left = refundable({ status: folded.status, left: folded.freeToRefund, refundBy, now: ctx.now() })
  if (typeof left === "string") throw refused(left)
  const owners = await refundOwners(ctx, { chainId }, [escrow.receiver])
  if ((owners.get(escrow.receiver) ?? merchantId) !== merchantId)
    throw refused(`This can't be refunded here. ${OTHER_OWNER}`)
  const amount = amountOf(ctx, chainId, body, left)
  const limit = await limitOf(ctx, standing, "refund", amount === left)
  if (limit) throw refused(limit)
  const needed = amount + (await neededOf(ctx, { merchantId, chainId }, purseOf(escrow)))
  const id = await write(ctx, standing, { amount, reason: body.reason ?? null }, funds && funds.allowance < needed)
  const allowances = new Map(funds ? [[keyOf(chainId, purseOf(escrow)), funds.allowance]] : [])
  const [shown] = await refundsWith(ctx, await refundsWhere(ctx, { merchantId, id }).execute(), allowances)
  if (!shown) throw new Error(`the refund ${id} was written and is not there`)
  return shown
}

function amountOf(ctx: TxContext, chainId: number, body: RefundCreate, left: bigint): bigint {
  if (body.amount === undefined) return left
  const { token } = networkOf(ctx.chain, chainId)
  const written = asWritten(body, "amount")
  const amount = readAmount("amount", written, token, formatAmount(1n, token.decimals))
  if (typeof amount !== "bigint") throw new ApiError("VALIDATION_ERROR", [amount])
  if (amount > left)
    throw refused(
      `At most ${formatAmount(left, token.decimals)} ${token.symbol} of this checkout can be refunded; refunds that are not mined yet count too.`,
    )
  // Each refund costs the service gas, so there is a minimum. The whole rest can always be refunded.
  const fault = readAmount("amount", written, token, ctx.settings.minAmount)
  if (typeof fault !== "bigint" && amount < left) throw invalid("amount", `${fault.message}, or the whole rest`)
  return amount
}

/** Writes a refund and its call, which is held if the wallet's allowance `isShort`; returns the refund's id. */
async function write(
  ctx: TxContext,
  standing: CurrentEscrow,
  { amount, reason }: { amount: bigint; reason: string | null },
  isShort = false,
): Promise<string> {
  const { session_id, merchant_id } = standing.escrow
  const now = ctx.now()
  const heldUntil = isShort ? firstLook(now) : undefined
  const { id: payout_id } = await insertCall(ctx, standing, { kind: "refund", amount, heldUntil })
  const id = newId("re")
  await ctx.db
    .insertInto("refunds")
    .values({ id, session_id, merchant_id, amount, reason, payout_id, created_at: now, updated_at: now })
    .execute()
  return id
}
