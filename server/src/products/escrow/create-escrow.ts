/** Creates a checkout session's escrow: the terms that its payer will sign. */
import { randomBytes } from "node:crypto"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { ErrorDetail } from "../../platform/errors.ts"
import { type EscrowTerms, nonceOf, secondsOf } from "./payment-info.ts"

const HOUR_MS = 3_600_000
const DAY_S = 86_400
/** How long a reservation that was signed in a checkout's last minute may take to be mined. */
const PRE_APPROVAL_MS = HOUR_MS
const DEFAULT_CAPTURE_S = 7 * DAY_S
const DEFAULT_REFUND_S = 90 * DAY_S
/** The largest amount that the contract stores, in 120 bits. */
const MAX_AMOUNT = 2n ** 120n - 1n

/** The requested times of a session's escrow, in seconds. */
export interface EscrowAsked {
  /** How long after the session's end the money can be captured; at least an hour. */
  captureWithin?: number
  /** How long after the end of `captureWithin` the money can be refunded. */
  refundWithin?: number
}

/**
 * Returns why a session can't be paid as requested, as faults of the request; empty if it can be or if it is direct.
 */
export function escrowFaults(
  ctx: TxContext,
  {
    network,
    amount,
    link,
    setId,
  }: {
    network: NetworkInfo
    amount: bigint
    link: Pick<Row<"payment_links">, "max_uses"> | undefined
    setId: bigint | undefined
  },
  { capture = "direct", ...asked }: EscrowAsked & { capture?: Row<"checkout_sessions">["capture"] },
): ErrorDetail[] {
  if (capture === "direct")
    return (["captureWithin", "refundWithin"] as const)
      .filter(name => asked[name] !== undefined)
      .map(path => ({ path, message: "can't be given unless `capture` is manual or automatic" }))
  const fault = (path: string, message: string): ErrorDetail => ({ path, message })
  return [
    ...(network.escrow ? [] : [fault("capture", `must be direct on ${network.name}: no escrow is configured there`)]),
    ...(ctx.settings.relayWallet
      ? []
      : [fault("capture", "must be direct: this service has no relay wallet to call the escrow")]),
    ...(setId !== undefined ? [fault("capture", "must be direct if a split divides the payment")] : []),
    ...((link?.max_uses ?? null) !== null
      ? [fault("capture", "must be direct if the link has a limited number of uses")]
      : []),
    ...(amount > MAX_AMOUNT ? [fault("amount", "is more than an escrow can hold")] : []),
  ]
}

/**
 * Writes a new session's escrow after {@link escrowFaults} found nothing. Must be called in the session's
 * transaction.
 */
export async function makeEscrow(
  ctx: TxContext,
  network: NetworkInfo,
  session: Row<"checkout_sessions">,
  receiver: Address,
  { captureWithin = DEFAULT_CAPTURE_S, refundWithin = DEFAULT_REFUND_S }: EscrowAsked,
): Promise<Row<"escrows">> {
  const { escrow } = network
  const operator = ctx.settings.relayWallet
  if (!escrow || !operator) throw new Error("a session with an escrow needs an escrow and a relay wallet")
  const captureMs = captureWithin * 1_000
  const expiry = inSeconds(session.expires_at.getTime() + captureMs)
  const terms: EscrowTerms = {
    chain_id: network.chainId,
    escrow: escrow.address,
    token: network.token.address,
    operator,
    receiver,
    max_amount: session.amount,
    pre_approval_expiry: inSeconds(session.expires_at.getTime() + PRE_APPROVAL_MS),
    authorization_expiry: expiry,
    refund_expiry: inSeconds(expiry.getTime() + refundWithin * 1_000),
    salt: `0x${randomBytes(32).toString("hex")}` as Hash,
  }
  return await ctx.db
    .insertInto("escrows")
    .values({
      ...terms,
      session_id: session.id,
      merchant_id: session.merchant_id,
      nonce: nonceOf(terms),
      version: escrow.version,
      collector: escrow.collector,
      refund_collector: escrow.refundCollector ?? null,
      // One hour before the authorization ends. If the authorization is short, at the start of its last quarter.
      void_at: new Date(expiry.getTime() - Math.min(HOUR_MS, captureMs / 4)),
      run_at: session.expires_at,
      created_at: ctx.now(),
      updated_at: ctx.now(),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}

const inSeconds = (ms: number): Date => new Date(secondsOf(new Date(ms)) * 1_000)
