/** Writes the escrow calls that need no payer's signature: captures, voids and refunds. */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Hex } from "viem"
import { NEVER } from "../../ledger/txmanager/recheck.ts"
import { captureCall, type PaymentInfo, refundCall, voidCall } from "../../platform/chain/escrow.ts"
import { type Address, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { marked } from "../../platform/chain/release-call.ts"
import type { TxContext } from "../../platform/context.ts"
import type { EscrowCallKind, Row } from "../../platform/db/schema.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { continueTrace } from "../../platform/tracing/trace.ts"
import { ofKind, standingOf } from "./fold-escrow.ts"
import type { CurrentEscrow } from "./load-escrow.ts"
import { paymentInfoOf } from "./payment-info.ts"

/** How long before the contract's deadline a call must be signed. */
export const MIN_TIME_MS = 300_000

/**
 * How many captures or refunds of one payment may be open at once. All relays share 16 slots in flight, and one
 * merchant must not take all of them.
 */
const MAX_OPEN = 8
/**
 * How many captures or refunds of one payment may be made, including withdrawn ones, because each request and each
 * fold reads all of them.
 */
const MAX_MADE = 100
/** The limit that includes calls for the whole rest, which can be withdrawn and made again. */
const MAX_EVER = 200

const LIMIT_WORDS = {
  capture: {
    open: "captures of this payment are in progress; wait until one of them has its result.",
    made: "A payment can be captured at most 100 times. Leave `amount` out to capture the whole rest.",
    ever: "This payment was captured too often. The rest goes back to the payer.",
  },
  refund: {
    open: "refunds of this payment are open; wait until one of them has its result, or withdraw one.",
    made: "A payment can be refunded at most 100 times, including withdrawn refunds. Leave `amount` out to refund the whole rest.",
    ever: "This payment was refunded too often. Send the rest to the payer from your payout wallet.",
  },
} as const

/**
 * Returns why no further capture or refund of a payment can be made, as sentences for its merchant; undefined if one
 * can. For a call for `all` of the rest, held calls don't count towards the open ones, and only {@link MAX_EVER}
 * limits the total.
 */
export async function limitOf(
  ctx: TxContext,
  { escrow, calls }: CurrentEscrow,
  kind: "capture" | "refund",
  all: boolean,
): Promise<string | undefined> {
  const words = LIMIT_WORDS[kind]
  const open = ofKind(calls, kind).filter(call => standingOf(call) === "open" && !(all && call.state === "held"))
  if (open.length >= MAX_OPEN) return `${MAX_OPEN} ${words.open}`
  const { n } = await ctx.db
    .selectFrom("payouts")
    .select(sql<number>`count(*)::int`.as("n"))
    .where("escrow_id", "=", escrow.session_id)
    .where("kind", "=", kind)
    .executeTakeFirstOrThrow()
  if (n >= MAX_EVER) return words.ever
  return n >= MAX_MADE && !all ? words.made : undefined
}

interface CallOfKind {
  /**
   * The gas limit: about three times the measured value in docs/developers/contracts.md, to allow for the live
   * token's proxy.
   */
  gas: bigint
  recipient(escrow: Row<"escrows">, payer: Address): Address
  data(escrow: Row<"escrows">, info: PaymentInfo, amount: bigint): Hex
  /** The time until which signing the call makes sense. */
  by(escrow: Row<"escrows">): Date
}

const beforeEnd = (end: Date): Date => new Date(end.getTime() - MIN_TIME_MS)

/** How the calls differ. */
const CALLS: Record<NewCall["kind"], CallOfKind> = {
  capture: {
    gas: 250_000n,
    recipient: ({ receiver }) => receiver,
    data: ({ version }, info, amount) => captureCall(version, info, amount),
    by: ({ authorization_expiry: expiry }) => beforeEnd(expiry),
  },
  void: {
    gas: 200_000n,
    recipient: (_escrow, payer) => payer,
    data: (_escrow, info) => voidCall(info),
    // The contract accepts a void for as long as it holds the money.
    by: () => NEVER,
  },
  refund: {
    gas: 350_000n,
    recipient: (_escrow, payer) => payer,
    data: ({ refund_collector: collector }, info, amount) => refundCall(info, amount, collector ?? ZERO_ADDRESS),
    by: ({ refund_expiry: expiry }) => beforeEnd(expiry),
  },
}

interface NewCall {
  kind: Exclude<EscrowCallKind, "reserve">
  /** In base units. */
  amount: bigint
  /** When the call is first checked, if it waits for the allowance of a merchant's wallet. */
  heldUntil?: Date | undefined
  /** What was sent, for a call that is already on chain. */
  sent?: Pick<Row<"payouts">, "id" | "data" | "gas"> | undefined
}

/**
 * Writes a call as a relay payout and returns its row. Must be called under the escrow's lock (`lockEscrow`), for at
 * most the amount that is free under that lock. Wake `payouts` after the commit.
 */
export async function insertCall(
  ctx: TxContext,
  { escrow, session }: Pick<CurrentEscrow, "escrow" | "session">,
  call: NewCall,
): Promise<Row<"payouts">> {
  const { kind, amount } = call
  const { session_id: sessionId, payer } = escrow
  if (payer === null) throw new Error(`nothing is reserved for ${sessionId}`)
  const id = call.sent?.id ?? randomUUID()
  const now = ctx.now()
  return await ctx.db
    .insertInto("payouts")
    .values({
      id,
      chain_id: escrow.chain_id,
      kind,
      source_key: keyOf(sessionId, kind),
      escrow_id: sessionId,
      merchant_id: escrow.merchant_id,
      token: escrow.token,
      recipient: CALLS[kind].recipient(escrow, payer),
      amount,
      to_address: escrow.escrow,
      data: call.sent?.data ?? marked(CALLS[kind].data(escrow, paymentInfoOf(escrow, payer), amount), id),
      gas: call.sent?.gas ?? CALLS[kind].gas,
      relay_by: CALLS[kind].by(escrow),
      reserved: false,
      state: call.heldUntil ? "held" : "queued",
      held_reason: call.heldUntil ? "allowance" : null,
      run_at: call.heldUntil ?? dueNow(now),
      created_at: now,
      updated_at: now,
      traceparent: continueTrace(ctx, session.traceparent),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}

/** SQL: the key of the next call of a kind, numbered by how many there are when the statement writes it. */
const keyOf = (sessionId: string, kind: NewCall["kind"]) =>
  sql<string>`${`escrow:${sessionId}:${kind}:`}::text || (select count(*) from payouts i
    where i.escrow_id = ${sessionId} and i.kind = ${kind})`
