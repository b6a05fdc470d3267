/**
 * Verifies and settles payments for other x402 servers. Their buyers' money goes from payer to payee, never through
 * us. A settlement's row is written before the broadcast, so an answer that was lost can be found again. A payment
 * gets `success: true` only once, so a server with racing requests serves only one of them.
 */
import { createHash } from "node:crypto"
import type { FastifyReply } from "fastify"
import { scannedBlock } from "../../ledger/scanner/watch-scan-lag.ts"
import { isAttemptOf } from "../../ledger/txmanager/read-batch-calls.ts"
import { type Address, checksummed, parseAddress } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Holder } from "../../platform/http/waiter-slots.ts"
import { awaitSettlement } from "./await-settlement.ts"
import { checkPayment, matchPrice, matchTerms } from "./check-payment.ts"
import { bindingOf, type Claimed, claimPayment, type Sale } from "./claim-payment.ts"
import { followAnswer, type Right, releaseServing, takeServing } from "./lease-settlement.ts"
import { networkName, type Payment, type Price, parsePayment, SCHEME, type SettleAnswer } from "./protocol.ts"
import { type Outcome, outcomeOf, readSettlement, resolveOutcome, type Settlement } from "./read-outcome.ts"
import { type Refusal, refuse } from "./reasons.ts"
import type { FacilitatorBody } from "./schema.ts"

/** The longest wait for a settlement. Stock servers wait 90 seconds for an answer, whatever the payment allows. */
const MAX_WAIT_S = 75
/** The maximum length of an error message, because a payload can have many faults. */
const REASON_LENGTH = 1_000

/** A payment, and the terms of the server that asks for it. */
interface FacilitatorRequest {
  payment: Payment
  price: Price & { network: Network }
  /** How long the buyer waits, in seconds. */
  timeoutS: number
}

/**
 * Reads a request to `/verify` or `/settle`. Returns a refusal if the payload is unreadable, or if the network,
 * scheme or token is not served.
 */
function readAsked(
  ctx: Context,
  { paymentPayload, paymentRequirements }: FacilitatorBody,
): FacilitatorRequest | Refusal {
  const payment = readPayload(paymentPayload)
  if ("reason" in payment) return payment
  const wanted = paymentRequirements as Record<string, unknown>
  const network = ctx.chain.networks.find(each => networkName(each, payment.version) === wanted.network)
  if (wanted.scheme !== SCHEME) return refuse("unsupported_scheme")
  if (!network) return refuse("invalid_network")
  const amount = payment.version === 1 ? wanted.maxAmountRequired : wanted.amount
  const payTo = typeof wanted.payTo === "string" ? parseAddress(wanted.payTo) : undefined
  const asset = typeof wanted.asset === "string" ? parseAddress(wanted.asset) : undefined
  const isAmount = typeof amount === "string" && /^[1-9][0-9]{0,77}$/.test(amount)
  if (!payTo || !isAmount || asset !== network.token.address)
    return refuse(
      "invalid_payment_requirements",
      `The requirements must name an address, an amount in base units, and the asset ${checksummed(network.token.address)}.`,
    )
  const timeout = Number(wanted.maxTimeoutSeconds)
  const timeoutS = Number.isFinite(timeout) && timeout > 0 ? Math.min(timeout, MAX_WAIT_S) : MAX_WAIT_S
  return { payment, price: { network, payTo, amount: BigInt(amount) }, timeoutS }
}

/**
 * A payload that can't be read is a refused payment instead of an error, because stock servers drop an error's
 * message.
 */
function readPayload(json: unknown): Payment | Refusal {
  try {
    return parsePayment(json, "paymentPayload")
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "VALIDATION_ERROR") throw error
    return refuse(
      "invalid_payload",
      error.details
        ?.map(({ message }) => message)
        .join(" ")
        .slice(0, REASON_LENGTH),
    )
  }
}

const saleOf = (merchantId: string, { price }: FacilitatorRequest): Sale => ({
  merchantId,
  network: price.network,
  prices: [price],
  binding: bindingOf("facilitator", merchantId, price.payTo),
  purpose: `facilitator:${merchantId}`,
  caller: merchantId,
})

/** Builds the answer of `/verify`; nothing is written. */
export async function verify(ctx: Context, merchantId: string, body: FacilitatorBody) {
  const asked = readAsked(ctx, body)
  if ("reason" in asked) return invalidAnswer(asked)
  const { payment } = asked
  const payer = checksummed(payment.authorization.from)
  const sale = saleOf(merchantId, asked)
  const price = matchPrice(ctx, sale.prices, payment)
  if ("reason" in price) return invalidAnswer(price, payer)
  try {
    await assertUnlisted(ctx, asked)
    const checked = await checkPayment(ctx, sale.network, payment, sale)
    return "reason" in checked ? invalidAnswer(checked, payer) : { isValid: true, payer }
  } catch (error) {
    const refusal = listedRefusal(error)
    return invalidAnswer(refusal, payer)
  }
}

const invalidAnswer = ({ reason, words }: Refusal, payer?: string) => ({
  isValid: false,
  invalidReason: reason,
  invalidMessage: words,
  ...(payer ? { payer } : {}),
})

/**
 * Returns a refusal if a party is on a sanctions list, so that the answer is a refused payment instead of an error.
 * Rethrows other errors.
 */
function listedRefusal(error: unknown): Refusal {
  if (error instanceof ApiError && error.code === "SANCTIONS_MATCH") return refuse("sanctions_match")
  throw error
}

async function assertUnlisted(ctx: Context, { price: { payTo } }: FacilitatorRequest): Promise<void> {
  const screening = (await screen(ctx, [payTo], "facilitator")).get(payTo)
  if (screening === "listed") throw new ApiError("SANCTIONS_MATCH")
  if (screening !== "clear") throw new ApiError("CHAIN_UNAVAILABLE")
}

/** The options of a `/settle` call that are not in its body. */
interface SettleOptions {
  merchantId: string
  idempotencyKey: string | undefined
  confirmations: number
}

/**
 * Builds the answer of `/settle` once the transfer is in a block or the buyer's time is up. The settlement continues
 * after that.
 */
export async function settle(
  ctx: Context,
  reply: FastifyReply,
  body: FacilitatorBody,
  { merchantId, idempotencyKey, confirmations }: SettleOptions,
): Promise<SettleAnswer & { errorMessage?: string }> {
  const asked = readAsked(ctx, body)
  const written = (body.paymentRequirements as Record<string, unknown>).network
  const shared = { network: typeof written === "string" ? written : "" }
  const failed = ({ reason, words }: Refusal, payer?: Address, transaction = "") => ({
    success: false,
    errorReason: reason,
    errorMessage: words,
    transaction,
    ...shared,
    payer: payer ? checksummed(payer) : "",
  })
  if ("reason" in asked) return failed(asked)
  const payer = asked.payment.authorization.from
  // The buyer's own identifier proves nothing here: every request with it would get a success for the same payment.
  const payment = { ...asked.payment, identifier: idempotencyKey ? identifierOf(idempotencyKey) : undefined }
  const sale = saleOf(merchantId, asked)
  // Compared before a known payment is looked up, because this server may ask for more than that payment settled.
  const price = matchTerms(sale.prices, payment)
  if ("reason" in price) return failed(price, payer)
  let claimed: Claimed | Refusal
  try {
    await assertUnlisted(ctx, asked)
    claimed = await claimPayment(ctx, sale, payment)
  } catch (error) {
    if (error instanceof ApiError && error.code === "AUTHORIZATION_ALREADY_USED")
      return failed(refuse("invalid_exact_evm_nonce_already_used"), payer)
    // Stock servers throw on any status except 200.
    if (error instanceof ApiError && error.code === "RATE_LIMITED")
      return failed(refuse("settlement_pending", error.message), payer)
    return failed(listedRefusal(error), payer)
  }
  if ("reason" in claimed) return failed(claimed, payer)
  const { settlement, claimId, isIdentified } = claimed
  const right = { id: settlement.id, claimId }
  followAnswer(ctx, reply, { ...right, evenServed: true })
  const wanted = Math.min(confirmations, Number(asked.price.network.confirmations))
  // A merchant's server may wait for all of its buyers as long as nobody else needs the slots.
  const holder = { name: merchantId, most: Number.POSITIVE_INFINITY }
  const row = await awaitSettled(ctx, reply, claimed, { waitS: asked.timeoutS, holder, confirmations: wanted })
  const outcome = await resolveOutcome(ctx, asked.price.network, row)
  // A transaction from another sender may just have been found.
  const isNews = row.found_hash === null && outcomeOf(row) === undefined
  const last = isNews ? ((await readSettlement(ctx, row.id)) ?? row) : row
  if (outcome.state === "settled" && (await isDeep(ctx, last, wanted))) {
    const success = { success: true, payer: checksummed(payer), transaction: outcome.txHash, ...shared }
    const taken = await takeServing(ctx, right, merchantId)
    if (taken) {
      // The caller disconnected during the settlement and got no answer.
      if (reply.raw.destroyed) await releaseServing(ctx, right, true)
      else if (!isIdentified && taken.identifier !== null) await forgetIdentifier(ctx, right)
      return success
    }
    // As long as no call was answered, the next call may still be answered. The key that named the payment repeats only
    // an answer that was sent to that key.
    const { answered_at, identifier } = (await readSettlement(ctx, row.id)) ?? row
    const isAnswered = answered_at !== null
    if (isAnswered && identifier !== null && identifier === payment.identifier) return success
    return failed(refuse(isAnswered ? "duplicate_settlement" : "settlement_pending"), payer, outcome.txHash)
  }
  // The next call can continue to wait, and stock servers make that call immediately.
  await releaseServing(ctx, right, false)
  return failed(unsettled(outcome), payer, await lastHash(ctx, row))
}

/** Removes the identifier, because a key that named a payment must not repeat the answer to another call. */
const forgetIdentifier = ({ db }: Context, { id, claimId }: Right): Promise<unknown> =>
  db.updateTable("settlements").set({ identifier: null }).where("id", "=", id).where("claim_id", "=", claimId).execute()

function unsettled(outcome: Outcome): Refusal {
  if (outcome.state !== "failed") return refuse("settlement_pending")
  if (outcome.replayableUntil === undefined) return refuse("invalid_exact_evm_transaction_failed", outcome.words)
  const until = `Until ${outcome.replayableUntil} anyone can still execute it.`
  return refuse("settlement_pending", `${outcome.words} ${until}`)
}

/**
 * Turns an Idempotency-Key into the payment's identifier. The colon distinguishes it from identifiers of the
 * extension.
 */
const identifierOf = (key: string): string => `key:${createHash("sha256").update(key).digest("hex")}`

/** Waits until the payment is deep enough and may be answered, until its relay has ended, or until the time is up. */
async function awaitSettled(
  ctx: Context,
  reply: FastifyReply,
  { settlement, claimId }: Claimed,
  { confirmations, ...patience }: { waitS: number; holder: Holder; confirmations: number },
): Promise<Settlement> {
  const isOver = async (row: Settlement) => {
    if (outcomeOf(row)?.state !== "settled") return true
    const isAnswerable = row.answered_at !== null || row.claim_id === claimId || row.is_free
    return isAnswerable && (await isDeep(ctx, row, confirmations))
  }
  return await awaitSettlement(ctx, reply, settlement, patience, isOver)
}

/**
 * Whether a quorum reports the transfer at the required depth, counting its own block. The height of the scan is
 * checked first, because that costs no request. That height is not evidence, because a reorg may have displaced the
 * block.
 */
async function isDeep(
  ctx: Context,
  { block_number: relayed, tx_hash: hash, found_block: found, found_hash: foundHash, chain_id }: Settlement,
  confirmations: number,
): Promise<boolean> {
  const mined = found ?? relayed
  const txHash = foundHash ?? hash
  if (confirmations <= 1 || mined === null || txHash === null) return true
  const scanned = await scannedBlock(ctx.db, chain_id)
  if (scanned === undefined || scanned - mined + 1n < BigInt(confirmations)) return false
  const quorum = await openQuorum(networkOf(ctx.chain, chain_id), 0n, ctx.signal).catch(() => undefined)
  await quorum?.learn([mined], [txHash])
  const receipt = quorum?.receiptOf(txHash)
  if (!quorum || !receipt) return false
  return quorum.depthOf(receipt.blockNumber, receipt.blockHash) >= BigInt(confirmations)
}

/** The hash of the last transaction that was signed to execute a settlement; empty if there is none yet. */
async function lastHash(ctx: Context, { payout_id }: Pick<Settlement, "payout_id">): Promise<string> {
  const row = await ctx.db
    .selectFrom("payouts")
    .innerJoin("transaction_attempts", join => join.on(isAttemptOf))
    .select("hash")
    .where("payouts.id", "=", payout_id)
    .where("hash", "is not", null)
    .where("empty", "=", false)
    .orderBy("n", "desc")
    .limit(1)
    .executeTakeFirst()
  return row?.hash ?? ""
}
