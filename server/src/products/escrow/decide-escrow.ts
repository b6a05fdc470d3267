/** Executes a merchant's decision about reserved money: capture some of it, or void the rest. */
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { formatAmount, readAmount } from "../../platform/money/amount.ts"
import { ofKind } from "./fold-escrow.ts"
import { type CurrentEscrow, lockEscrow, standingOfEscrow } from "./load-escrow.ts"
import { insertCall, limitOf } from "./make-calls.ts"
import type { CaptureOrder } from "./schema.ts"
import { withdrawCall } from "./withdraw-call.ts"

/** A new call, and its amount as the answer shows it. */
export interface Decided {
  call: Row<"payouts">
  /** As decimal text. */
  amount: string
}

const stop = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)

/**
 * Captures `amount`, by default the whole rest, after withdrawing a held void. Must be called inside a transaction;
 * wake `payouts` afterwards. Throws `SESSION_NOT_FOUND`, `INVALID_OPERATION`, `RELAY_UNAVAILABLE`,
 * `VALIDATION_ERROR`.
 */
export async function captureEscrow(ctx: TxContext, merchantId: string, order: CaptureOrder): Promise<Decided> {
  const found = await heldOf(ctx, merchantId, order.sessionId)
  const { void_at: voidAt } = found.escrow
  if (ctx.now() >= voidAt)
    throw stop(
      `The time to capture this payment ended at ${voidAt.toISOString()}; the rest is released.${heldMessage(found)}`,
    )
  const standing = await withoutHeld(ctx, found, "void", "The merchant captured instead.")
  const { folded } = standing
  const { text } = wordsFor(ctx, standing)
  if (folded.open.void > 0) throw stop("The rest of this payment is being released, so nothing more can be captured.")
  const free = folded.freeToCapture
  if (free === 0n) throw stop("This payment is already fully captured, or is being captured.")
  const amount = amountOf(ctx, standing, order)
  const limit = await limitOf(ctx, standing, "capture", amount === free)
  if (limit) throw stop(limit)
  const call = await insertCall(ctx, standing, { kind: "capture", amount })
  return { call, amount: text(call.amount) }
}

/** Returns the requested amount in base units: at most what other captures leave, which is also the default. */
function amountOf(ctx: TxContext, standing: CurrentEscrow, order: CaptureOrder): bigint {
  const { session, folded } = standing
  const free = folded.freeToCapture
  if (order.amount === undefined) return free
  const { token } = networkOf(ctx.chain, session.chain_id)
  const written = asWritten(order, "amount")
  const amount = readAmount("amount", written, token, formatAmount(1n, token.decimals))
  if (typeof amount !== "bigint") throw new ApiError("VALIDATION_ERROR", [amount])
  if (amount > free) {
    const { text } = wordsFor(ctx, standing)
    throw stop(`Only ${text(free)} ${token.symbol} can still be captured of the reserved ${text(folded.authorized)}.`)
  }
  // Each capture costs the service gas, so there is a minimum. The whole rest can always be captured.
  const fault = readAmount("amount", written, token, ctx.settings.minAmount)
  if (typeof fault !== "bigint" && amount < free) throw invalid("amount", `${fault.message}, or the whole rest`)
  return amount
}

/**
 * Releases the whole rest to the payer, after withdrawing held captures. The conditions and errors are those of
 * {@link captureEscrow}.
 */
export async function voidEscrow(ctx: TxContext, merchantId: string, sessionId: string): Promise<Decided> {
  const found = await heldOf(ctx, merchantId, sessionId)
  if (found.folded.open.void > 0) throw stop(`The rest of this payment is already being released.${heldMessage(found)}`)
  const standing = await withoutHeld(ctx, found, "capture", "The merchant released it instead.")
  const { folded } = standing
  if (folded.open.capture > 0) throw stop("A capture of this payment is in progress; wait for its result.")
  const call = await insertCall(ctx, standing, { kind: "void", amount: folded.capturable })
  return { call, amount: wordsFor(ctx, standing).text(call.amount) }
}

/** Withdraws held calls of a kind, which must not block the opposite decision, and returns the escrow without them. */
async function withoutHeld(
  ctx: TxContext,
  standing: CurrentEscrow,
  kind: "capture" | "void",
  reason: string,
): Promise<CurrentEscrow> {
  const held = ofKind(standing.calls, kind).filter(({ state }) => state === "held")
  if (held.length === 0) return standing
  for (const { id } of held) await withdrawCall(ctx, id, reason)
  return await standingOfEscrow(ctx, standing)
}

/** Returns why a void is held, as a sentence to append; empty if none is held. */
function heldMessage({ calls }: CurrentEscrow): string {
  const held = ofKind(calls, "void").find(({ state }) => state === "held")
  return held ? ` The release is on hold and will be retried: ${held.held_detail ?? held.held_reason}.` : ""
}

/** Locks and returns the merchant's escrow, which must hold money that this service can move. */
async function heldOf(ctx: TxContext, merchantId: string, sessionId: string): Promise<CurrentEscrow> {
  const own = await ctx.db
    .selectFrom("checkout_sessions")
    .select("capture")
    .where("id", "=", sessionId)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!own) throw new ApiError("SESSION_NOT_FOUND")
  const locked = own.capture === "direct" ? undefined : await lockEscrow(ctx, sessionId)
  if (!locked) throw stop("This checkout is paid directly: nothing is reserved for it.")
  const standing = await standingOfEscrow(ctx, locked)
  const { folded, escrow } = standing
  if (folded.authorized === 0n) throw stop(`Nothing is reserved for this checkout; it is ${folded.status}.`)
  if (folded.capturable === 0n) throw stop("None of the money reserved for this checkout is left.")
  if (escrow.operator !== ctx.settings.relayWallet) throw new ApiError("RELAY_UNAVAILABLE", undefined, OTHER_OPERATOR)
  return standing
}

const OTHER_OPERATOR =
  "This payment was reserved with an earlier relay wallet, and only that wallet can capture or release it. Ask the operator of the service. After the time to capture, the payer can withdraw the rest."

function wordsFor(ctx: TxContext, { session }: CurrentEscrow) {
  const { decimals } = networkOf(ctx.chain, session.chain_id).token
  return { text: (amount: bigint) => formatAmount(amount, decimals) }
}
