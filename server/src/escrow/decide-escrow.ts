/** What a merchant decides about what is reserved: capture some of it, or void the rest. */
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { ApiError } from "../errors.ts"
import { formatAmount } from "../money/amount.ts"
import { lockEscrow, type Standing, standingOfEscrow } from "./load-escrow.ts"
import { insertCall } from "./make-calls.ts"

/** A call that was made now, and its amount as the answer has it. */
export interface Decided {
  call: Row<"payouts">
  /** Decimal text. */
  amount: string
}

const stop = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)

/**
 * Has `amount` base units captured, by default all that is left; `SESSION_NOT_FOUND`, `INVALID_OPERATION`, `RELAY_UNAVAILABLE`. Call it
 * inside a transaction, and wake `payouts` after it.
 */
export async function captureEscrow(
  ctx: TxContext,
  merchantId: string,
  sessionId: string,
  amount: bigint | undefined,
): Promise<Decided> {
  const standing = await heldOf(ctx, merchantId, sessionId)
  const { escrow, folded } = standing
  const { text, symbol } = wordsFor(ctx, standing)
  if (folded.open.void > 0)
    throw stop(`What is left of this payment is being released; nothing more can be captured.${heldWords(standing)}`)
  if (ctx.now() >= escrow.void_at)
    throw stop(`The time to capture this payment ended at ${escrow.void_at.toISOString()}; what is left is released.`)
  const free = folded.freeToCapture
  if (free === 0n) throw stop("All of this payment is captured already, or is being captured.")
  if (amount !== undefined && amount > free)
    throw stop(`Only ${text(free)} ${symbol} can still be captured: ${text(folded.authorized)} were reserved.`)
  const call = await insertCall(ctx, standing, { kind: "capture", amount: amount ?? free })
  return { call, amount: text(call.amount) }
}

/** Has all that is left released to the payer; throws as {@link captureEscrow}, which says how to call it. */
export async function voidEscrow(ctx: TxContext, merchantId: string, sessionId: string): Promise<Decided> {
  const standing = await heldOf(ctx, merchantId, sessionId)
  const { folded } = standing
  if (folded.open.void > 0) throw stop(`What is left of this payment is already being released.${heldWords(standing)}`)
  if (folded.open.capture > 0) throw stop("A capture of this payment is under way; wait for its result.")
  const call = await insertCall(ctx, standing, { kind: "void", amount: folded.capturable })
  return { call, amount: wordsFor(ctx, standing).text(call.amount) }
}

/** Why a void waits, as a sentence to append; empty where none is held. It is not withdrawn: no holder of the escrow locks its calls. */
function heldWords({ calls }: Standing): string {
  const held = calls.find(({ kind, state }) => kind === "void" && state === "held")
  return held ? ` The release is held for now, and tried again: ${held.held_detail ?? held.held_reason}.` : ""
}

/** The merchant's escrow, locked, with something left in it that this service can move. */
async function heldOf(ctx: TxContext, merchantId: string, sessionId: string): Promise<Standing> {
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
  if (folded.capturable === 0n) throw stop("Nothing is left of what was reserved for this checkout.")
  if (escrow.operator !== ctx.settings.relayWallet) throw new ApiError("RELAY_UNAVAILABLE", undefined, OTHER_OPERATOR)
  return standing
}

const OTHER_OPERATOR =
  "This payment was reserved with an earlier relay wallet, and only that one can capture or release it. Ask the operator of the service; the payer can take back what is left when the time to capture is over."

function wordsFor(ctx: TxContext, { session }: Standing) {
  const { decimals, symbol } = networkOf(ctx.chain, session.chain_id).token
  return { text: (amount: bigint) => formatAmount(amount, decimals), symbol }
}
