/**
 * Reserves a payment with its payer's signature (`ReceiveWithAuthorization`, EIP-3009), which the relay wallet sends
 * to the escrow. Only that wallet can execute the signature. The token moves the money only for the collector, the
 * collector obeys the escrow, and the escrow obeys its operator.
 */
import { type Hex, hashTypedData } from "viem"
import { isPaused } from "../../ledger/payouts/check-paused.ts"
import { type CheckedRelay, checkRelay, relayRow, relaysOf, writeRelays } from "../../ledger/relays/accept-relay.ts"
import { failingPayers, isFull, MAX_OPEN } from "../../ledger/relays/check-payer-limits.ts"
import { relayError } from "../../ledger/relays/explain-refused-relay.ts"
import { RESERVE_GAS } from "../../ledger/relays/try-relay.ts"
import type { Authorization } from "../../platform/chain/authorizations.ts"
import { authorizeCall, type PaymentInfo, typedPayment } from "../../platform/chain/escrow.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { isLinkUsedUp } from "../../platform/db/check-link-uses.ts"
import type { Row, SessionStatus } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { isSpent, ofKind } from "./fold-escrow.ts"
import { type CurrentEscrow, escrowsOf, lockEscrow, standingOfEscrow } from "./load-escrow.ts"
import { authIdOf, authorizationFaults, paymentInfoOf } from "./payment-info.ts"
import { RESERVING } from "./words.ts"

/** How long a reservation takes from its submission until it is in a block on a busy network. */
const MIN_TIME_MS = 60_000
/** How many reservations one wallet may make per session. Reservations that are cancelled unsigned cost nothing. */
const MAX_RELAYS = 20
const OTHER_WAY = "Ask the merchant for another way to pay."

interface Signed {
  authorization: Authorization
  signature: Hex
}

interface Reserving {
  status: SessionStatus
  txHash: Hash | null
}

/**
 * Reserves a payment; the same authorization gets the same answer again. Throws `AUTHORIZATION_ALREADY_USED`,
 * `SESSION_ALREADY_CONFIRMED`, `SESSION_EXPIRED`, `LINK_UNAVAILABLE`, `INVALID_OPERATION`, `AUTHORIZATION_REFUSED`,
 * `SANCTIONS_MATCH`, `RELAY_UNAVAILABLE`, `CHAIN_UNAVAILABLE`, `PAYMENTS_PAUSED`; none of these errors leaves a
 * trace.
 */
export async function authorizeEscrow(
  ctx: Context,
  network: Network,
  session: Row<"checkout_sessions">,
  { authorization, signature }: Signed,
): Promise<Reserving> {
  const escrow = (await escrowsOf(ctx, [session])).get(session.id)
  if (!escrow) throw new Error(`${session.id} has no escrow`)
  const asked = askedOf(network, escrow, authorization)
  // Read before the earlier answer is looked up. If another request writes this authorization's call in between, that
  // call is not in `standing`.
  const standing = await standingOfEscrow(ctx, { session, escrow })
  const known = await knownAnswer(ctx, network, session, asked)
  if (known) return known
  await assertReservable(ctx, network, standing, asked)
  const checked = await checkRelay(ctx, network, {
    merchantId: session.merchant_id,
    purpose: `authorize:${session.id}`,
    authorization,
    digest: asked.digest,
    signature,
    call: {
      to: escrow.escrow,
      data: signature => authorizeCall(asked.info, authorization.value, escrow.collector, signature),
      gas: RESERVE_GAS,
    },
  })
  if ("refusal" in checked) {
    // Another request with the same authorization was faster, and the token refuses a second execution.
    const first = await knownAnswer(ctx, network, session, asked)
    if (first) return first
    throw await relayError(ctx, network, checked, OTHER_WAY)
  }
  const answer = await inTransaction(ctx, async ctx => {
    const locked = await lockEscrow(ctx, session.id)
    if (!locked) throw new Error(`${session.id} has no escrow`)
    const known = await knownAnswer(ctx, network, locked.session, asked)
    if (known) return known
    const standing = await standingOfEscrow(ctx, locked)
    await assertReservable(ctx, network, standing, asked)
    return await writeReservation(ctx, network, standing, { ...asked, checked })
  })
  await ctx.wakes.wake("payouts")
  return answer
}

/** An authorization, with the terms and the hash that it must match. */
interface EscrowRequest {
  authorization: Authorization
  info: PaymentInfo
  digest: Hash
}

function askedOf(network: NetworkInfo, escrow: Row<"escrows">, authorization: Authorization): EscrowRequest {
  const info = paymentInfoOf(escrow, authorization.from)
  const contracts = { address: escrow.escrow, collector: escrow.collector }
  const digest = hashTypedData(typedPayment(network, contracts, info)) as Hash
  return { authorization, info, digest }
}

/**
 * Returns the current answer to an authorization that was submitted before. Undefined if it is new, or if its
 * reservation ended without money. Throws `AUTHORIZATION_ALREADY_USED` if its nonce was used for something else.
 */
async function knownAnswer(
  ctx: TxContext,
  network: NetworkInfo,
  session: Row<"checkout_sessions">,
  { authorization, digest }: EscrowRequest,
): Promise<Reserving | undefined> {
  const known = (await relaysOf(ctx, network, authorization.from, authorization.nonce)).find(
    ({ state }) => state !== "cancelled" && state !== "reverted",
  )
  if (!known) return undefined
  if (known.auth_digest !== digest || known.escrow_id !== session.id) throw new ApiError("AUTHORIZATION_ALREADY_USED")
  return { status: session.status, txHash: known.succeeded ? known.tx_hash : null }
}

/** Checks in the database that this authorization reserves exactly what this session asks for. */
async function assertReservable(
  ctx: TxContext,
  network: NetworkInfo,
  { session, escrow, calls, folded }: CurrentEscrow,
  { authorization }: EscrowRequest,
): Promise<void> {
  const stop = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)
  const leftMs = session.expires_at.getTime() - ctx.now().getTime()
  if (folded.authorized > 0n) throw new ApiError("SESSION_ALREADY_CONFIRMED")
  if (folded.open.reserve > 0)
    throw stop("Another payment of this checkout is already being reserved; wait for its result.")
  if (Object.values(folded.open).some(n => n > 0))
    throw stop("An earlier payment of this checkout failed and is being ended. Try again in a few minutes.")
  if (isSpent(calls)) throw stop(`Too many authorizations of this checkout failed. ${OTHER_WAY}`)
  if (session.status === "expired" || session.status === "failed" || leftMs <= MIN_TIME_MS)
    throw new ApiError("SESSION_EXPIRED", undefined, tooLateMessage(leftMs))
  if (await isPaused(ctx, network)) throw new ApiError("PAYMENTS_PAUSED")
  if (await isLinkUsedUp(ctx, session.link_id)) throw new ApiError("LINK_UNAVAILABLE")
  if (escrow.operator !== ctx.settings.relayWallet)
    throw new ApiError("RELAY_UNAVAILABLE", undefined, `The service can no longer reserve this payment. ${OTHER_WAY}`)
  const own = ofKind(calls, "reserve").filter(({ payer }) => payer === authorization.from)
  // One wallet's attempts must not lock other wallets out.
  if (own.length >= MAX_RELAYS)
    throw stop("Too many authorizations of this checkout by this wallet failed. Pay with another wallet.")
  if ((await failingPayers(ctx, [authorization.from])).size > 0)
    throw stop(`Too many of this wallet's authorizations failed today. ${OTHER_WAY}`)
  if (await isFull(ctx, network, authorization.from))
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      `${MAX_OPEN} authorizations of this wallet are already waiting. ${OTHER_WAY}`,
    )
  const differing = authorizationFaults(escrow, authorization)
  if (differing.length > 0) throw new ApiError("AUTHORIZATION_REFUSED", differing)
}

const tooLateMessage = (leftMs: number): string =>
  leftMs <= 0
    ? "This checkout has expired. Start a new one."
    : "This checkout expires within a minute, too soon for an authorization. Start a new one."

async function writeReservation(
  ctx: TxContext,
  network: NetworkInfo,
  { session, escrow, calls }: CurrentEscrow,
  { authorization, digest, checked }: EscrowRequest & { checked: CheckedRelay },
): Promise<Reserving> {
  const relayBy = new Date(session.expires_at.getTime() - MIN_TIME_MS)
  // A contract wallet's call is recognized by its gas limit, which must differ from that of a key's call.
  const gas = checked.by === "contract" && checked.gas === RESERVE_GAS.key ? checked.gas + 1n : checked.gas
  const to = { merchantId: session.merchant_id }
  const { traceparent } = session
  const row = {
    ...relayRow(
      ctx,
      network,
      { ...checked, gas },
      { kind: "reserve", authorization, digest, relayBy, to, traceparent },
    ),
    source_key: `escrow:${session.id}:reserve:${ofKind(calls, "reserve").length}`,
    escrow_id: session.id,
    to_address: escrow.escrow,
  }
  if ((await writeRelays(ctx, [row])).size === 0) throw new ApiError("AUTHORIZATION_ALREADY_USED")
  await writeReserving(ctx, escrow, authorization.from)
  return { status: "verifying", txHash: null }
}

/** Records that a payer's reservation is in progress. Must be called in the transaction that writes its call. */
export async function writeReserving(ctx: TxContext, escrow: Row<"escrows">, payer: Address): Promise<void> {
  const { session_id: sessionId } = escrow
  const now = ctx.now()
  await ctx.db
    .updateTable("escrows")
    .set({ payer, auth_id: authIdOf(escrow, payer), updated_at: now })
    .where("session_id", "=", sessionId)
    .execute()
  await ctx.db
    .updateTable("checkout_sessions")
    .set({ status: "verifying", message: RESERVING, updated_at: now })
    .where("id", "=", sessionId)
    .execute()
}
