/**
 * Pays a checkout with its payer's signed authorization (EIP-3009), which the relay wallet executes. Everything is
 * checked before anything is written, because each relay costs the service gas. Chain calls happen outside the
 * transaction, and database checks are repeated inside it.
 */
import { sql } from "kysely"
import type { Hex } from "viem"
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { pausedWhile } from "../../ledger/payouts/check-paused.ts"
import { checkRelay, writeRelay } from "../../ledger/relays/accept-relay.ts"
import { failingPayers, MAX_OPEN, MAX_REVERTED } from "../../ledger/relays/check-payer-limits.ts"
import { relayError } from "../../ledger/relays/explain-refused-relay.ts"
import { replayable, replayableUntil } from "../../ledger/relays/read-relay-status.ts"
import { voided } from "../../ledger/relays/try-relay.ts"
import { type Authorization, authorizationDigest } from "../../platform/chain/authorizations.ts"
import { type Address, checksummed, type Hash, parseAddress } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { PayoutState, SessionStatus } from "../../platform/db/schema.ts"
import { ApiError, type ErrorDetail } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { formatAmount, parseAmount } from "../../platform/money/amount.ts"
import { authorizeEscrow } from "../escrow/authorize-escrow.ts"
import { sessionOf } from "./create-session.ts"
import { type Authorizable, type EarlierRelay, loadAuthorizable } from "./load-authorizable.ts"
import type { PayAuthorize } from "./schema.ts"
import { replayCaution } from "./session-rules.ts"

/** How long a relay takes from its submission until it is in a block on a busy network. */
const MIN_TIME_MS = 60_000
/**
 * The most relays of one session, finished ones included. The limit stops anyone from filling the database with
 * relays that end unsigned.
 */
const MAX_RELAYS = 20
/**
 * How much longer an authorization may be valid than its checkout, because wallets preset one or two hours. While an
 * authorization is valid, anyone can execute it, so a payer who also pays in another way may pay twice.
 */
const MAX_OVERTIME_S = 7_200n
const MAX_UINT256 = 2n ** 256n - 1n

interface Authorized {
  status: SessionStatus
  txHash: Hash | null
}

/**
 * Accepts an authorization for a session and queues its relay. The same authorization gets the same answer again,
 * whatever the session's later state. Throws `VALIDATION_ERROR`, `SESSION_NOT_FOUND`, `AUTHORIZATION_ALREADY_USED`,
 * `SESSION_ALREADY_CONFIRMED`, `SESSION_EXPIRED`, `LINK_UNAVAILABLE`, `INVALID_OPERATION`, `AUTHORIZATION_REFUSED`,
 * `SANCTIONS_MATCH`, `RELAY_UNAVAILABLE`, `CHAIN_UNAVAILABLE`, `PAYMENTS_PAUSED`; none of these errors leaves a
 * trace.
 */
export async function authorizeSession(ctx: Context, body: PayAuthorize): Promise<Authorized> {
  try {
    return await authorizeOnce(ctx, body)
  } catch (error) {
    // A concurrent identical request may have been accepted between two reads of this request, which then has an
    // answer.
    if (!(error instanceof ApiError) || (await sessionOf(ctx, body.sessionId)).status !== "verifying") throw error
    return await authorizeOnce(ctx, body)
  }
}

async function authorizeOnce(ctx: Context, body: PayAuthorize): Promise<Authorized> {
  const authorization = authorizationOf(body.authorization)
  const signature = body.signature.toLowerCase() as Hex
  const found = await loadAuthorizable(ctx, body.sessionId, authorization)
  if (!found) return await authorizeReserved(ctx, body.sessionId, { authorization, signature })
  const { session, deposit } = found
  const network = networkOf(ctx.chain, session.chain_id)
  const asked = { network, authorization, digest: authorizationDigest(network, authorization) }
  const known = knownAnswer(found, asked)
  if (known) return known
  const { others, otherWay } = await assertPayable(ctx, found, asked)

  const harmless = await voided(ctx, network, others)
  assertOnlyOneMoves(others, harmless)
  const checked = await checkRelay(ctx, network, {
    merchantId: session.merchant_id,
    purpose: `authorize:${session.id}`,
    authorization,
    digest: asked.digest,
    signature,
    deposit,
  })
  if ("refusal" in checked) throw await relayError(ctx, network, checked, otherWay)

  const answer = await inTransaction(ctx, async ctx => {
    await lockSession(ctx, session.id)
    // Read again under the lock by a separate statement, because a statement that waits for a lock sees the old
    // state.
    const found = await loadAuthorizable(ctx, session.id, authorization)
    if (!found) throw new Error("a session that was paid directly is no more")
    const known = knownAnswer(found, asked)
    if (known) return known
    const { relayBy, others } = await assertPayable(ctx, found, asked)
    assertOnlyOneMoves(others, harmless)
    const relay = {
      kind: "authorize" as const,
      authorization,
      digest: asked.digest,
      relayBy,
      to: { depositId: deposit.id },
      traceparent: session.traceparent,
    }
    if (!(await writeRelay(ctx, network, checked, relay))) throw new ApiError("AUTHORIZATION_ALREADY_USED")
    await sql`/* named: verifying_session, deferred */ update checkout_sessions
      set status = 'verifying', message = null, updated_at = ${ctx.now()} where id = ${session.id}`.execute(ctx.db)
    return { status: "verifying" as const, txHash: null }
  })
  if (found.isWatchEnding) await watch(ctx, session.id)
  await ctx.wakes.wake("payouts")
  return answer
}

/** Accepts an authorization for a session that reserves money in an escrow. */
async function authorizeReserved(
  ctx: Context,
  id: string,
  signed: { authorization: Authorization; signature: Hex },
): Promise<Authorized> {
  const session = await sessionOf(ctx, id)
  return await authorizeEscrow(ctx, networkOf(ctx.chain, session.chain_id), session, signed)
}

/** Locks the session until the transaction ends. The session may have been put away between two reads. */
async function lockSession(ctx: TxContext, id: string): Promise<void> {
  const { rows } = await sql`
    select /* named: lock_session */ id from checkout_sessions where id = ${id} for no key update`.execute(ctx.db)
  if (rows.length === 0) throw new ApiError("SESSION_NOT_FOUND")
}

/** The parsed contents of a request. */
interface AuthorizationRequest {
  network: Network
  authorization: Authorization
  digest: Hash
}

const refused = (details: ErrorDetail[]) => new ApiError("AUTHORIZATION_REFUSED", details)

/** Parses an authorization. Throws `VALIDATION_ERROR` with every fault that the schema does not catch. */
function authorizationOf(body: PayAuthorize["authorization"]): Authorization {
  const faults: ErrorDetail[] = []
  const fault = (name: string, message: string) => void faults.push({ path: `authorization.${name}`, message })
  const address = (name: "from" | "to"): Address => {
    const parsed = parseAddress(body[name])
    if (!parsed) fault(name, "must have a valid checksum because its case is mixed")
    return parsed ?? (body[name] as Address)
  }
  const uint = (name: "value" | "validAfter" | "validBefore"): bigint => {
    const written = asWritten(body, name) ?? ""
    if (typeof body[name] === "number" && !Number.isSafeInteger(body[name]))
      fault(name, "must be sent as a string: a JSON number of this size loses digits")
    else if (!/^[0-9]+$/.test(written) || BigInt(written) > MAX_UINT256)
      fault(name, "must be decimal digits, and at most 2^256 - 1")
    else return BigInt(written)
    return 0n
  }
  const authorization = {
    from: address("from"),
    to: address("to"),
    value: uint("value"),
    validAfter: uint("validAfter"),
    validBefore: uint("validBefore"),
    nonce: body.nonce.toLowerCase() as Hash,
  }
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return authorization
}

/**
 * The states of a relay that ended without moving money. Its authorization may be submitted again, because a nonce
 * moves money at most once.
 */
const endedUnpaid: readonly PayoutState[] = ["cancelled", "reverted"]

/**
 * The current answer to an authorization that was submitted before; undefined if it is new or if its relay moved
 * nothing. Throws `AUTHORIZATION_ALREADY_USED` if the nonce belongs to another authorization or paid another session.
 */
function knownAnswer(
  { session, deposit, ofNonce }: Authorizable,
  { digest }: AuthorizationRequest,
): Authorized | undefined {
  const known = ofNonce.find(({ state }) => !endedUnpaid.includes(state))
  if (!known) return undefined
  if (known.auth_digest !== digest || known.deposit_id !== deposit.id) throw new ApiError("AUTHORIZATION_ALREADY_USED")
  return { status: session.status, txHash: known.succeeded ? known.tx_hash : null }
}

/**
 * Refuses an authorization while anyone can still execute another authorization for the same checkout, because both
 * could move money. `others` excludes authorizations with the same wallet and nonce, of which the token accepts only
 * one.
 */
function assertOnlyOneMoves(others: readonly EarlierRelay[], harmless: ReadonlySet<string>): void {
  const open = others.filter(({ id }) => !harmless.has(id))
  const [first] = open
  if (!first?.payer) return
  const message = `An authorization of this checkout failed on chain, and anyone can submit it until ${replayableUntil(open)}. Sign with the same wallet ${checksummed(first.payer)} and nonce ${first.auth_nonce}, cancel it on chain (cancelAuthorization), or wait until then.`
  throw new ApiError("INVALID_OPERATION", [{ path: "authorization.nonce", message }], message)
}

/** The result of {@link assertPayable}. */
interface Payable {
  /** The time by which the relay must be signed. */
  relayBy: Date
  /** Reverted relays of this session, with another wallet or nonce, that anyone can still execute. */
  others: EarlierRelay[]
  /** How the payer can pay without a relay and without paying twice. */
  otherWay: string
}

/** Checks, against the data that was read, that this authorization can pay this session now. */
async function assertPayable(ctx: TxContext, found: Authorizable, asked: AuthorizationRequest): Promise<Payable> {
  const { session, deposit, ofSession: relays } = found
  const { network, authorization } = asked
  const now = ctx.now().getTime()
  const leftMs = session.expires_at.getTime() - now
  if (session.status === "confirmed") throw new ApiError("SESSION_ALREADY_CONFIRMED")
  const failed = replayable(ctx, relays)
  const until = replayableUntil(failed)
  if (session.status === "expired" || leftMs <= MIN_TIME_MS)
    throw new ApiError("SESSION_EXPIRED", undefined, tooLateMessage(session.status === "expired" ? 0 : leftMs, until))
  // While payments are paused, whoever holds the payout key may empty the address to which a relay would move the
  // money.
  if (pausedWhile(ctx, found.halted)(network, deposit)) throw new ApiError("PAYMENTS_PAUSED")
  if (found.isLinkUsedUp) throw new ApiError("LINK_UNAVAILABLE")
  const otherWay =
    until === undefined
      ? "Send a transfer from your wallet instead."
      : `Or send a transfer from your wallet after ${until}: until then anyone can submit the failed authorization.`
  const stop = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)
  if (relays.some(({ state }) => ["queued", "held", "assigned", "mined"].includes(state)))
    throw stop("Another authorization of this checkout is already being processed; wait for its result.")
  if (
    relays.filter(({ state, was_signed }) => state === "reverted" && was_signed).length >= MAX_REVERTED ||
    relays.length >= MAX_RELAYS
  )
    throw stop(`Too many authorizations of this checkout failed. ${otherWay}`)
  if ((await failingPayers(ctx, [authorization.from])).size > 0)
    throw stop(`Too many of this wallet's authorizations failed today. ${otherWay}`)
  if (found.open >= MAX_OPEN)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      `${MAX_OPEN} authorizations of this wallet are already waiting. ${otherWay}`,
    )

  assertExact(ctx, found, asked)
  const validMs = authorization.validBefore * 1_000n
  const expiresMs = session.expires_at.getTime()
  const overMs = validMs < BigInt(expiresMs) ? Number.parseInt(validMs.toString(), 10) : expiresMs
  const { from, nonce } = authorization
  const others = failed.filter(row => row.payer !== from || row.auth_nonce !== nonce)
  return { relayBy: new Date(overMs - MIN_TIME_MS), others, otherWay }
}

/** Checks that an authorization pays exactly the amount that its session lacks, and that it is in time. */
function assertExact(
  ctx: TxContext,
  { session, deposit, arriving }: Authorizable,
  { network, authorization }: AuthorizationRequest,
): void {
  const faults: ErrorDetail[] = []
  const fault = (name: string, message: string) => void faults.push({ path: `authorization.${name}`, message })
  const { symbol, decimals } = network.token
  const seconds = BigInt(Math.floor(ctx.now().getTime() / 1_000))
  const { to, value, validAfter, validBefore } = authorization
  if (to !== deposit.address) fault("to", `must be ${checksummed(deposit.address)}, the payTo of this checkout`)
  const missing = session.amount - arriving
  if (value !== missing)
    fault(
      "value",
      missing > 0n
        ? `must be ${missing}, the ${formatAmount(missing, decimals)} ${symbol} still to be paid`
        : "is too much: the whole amount has arrived or is being verified",
    )
  else if (value < parseAmount(ctx.settings.minAmount, decimals))
    fault(
      "value",
      `is less than ${ctx.settings.minAmount} ${symbol}, which is too little to relay: send it with a transfer`,
    )
  if (validAfter >= seconds) fault("validAfter", `must be in the past; it is ${seconds} now`)
  const least = BigInt(MIN_TIME_MS / 1_000)
  if (validBefore < seconds + least)
    fault(
      "validBefore",
      `must be at least ${least} seconds from now, so that it can be mined in time; it is ${seconds} now`,
    )
  const most = BigInt(Math.floor(session.expires_at.getTime() / 1_000)) + MAX_OVERTIME_S
  if (validBefore > most) fault("validBefore", `must be at most ${most}, two hours after this checkout ends`)
  if (faults.length > 0) throw refused(faults)
}

/** The message for a checkout that accepts no more authorizations: the reason, and when a new checkout is safe. */
function tooLateMessage(leftMs: number, until: string | undefined): string {
  const words =
    leftMs <= 0 ? "This checkout has expired." : "This checkout expires within a minute, too soon for an authorization."
  return until === undefined ? `${words} Start a new one.` : `${words} ${replayCaution(until, "expired")}`
}
