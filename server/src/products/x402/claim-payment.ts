/**
 * Binds an authorization to the request that it pays for, and hands it to the relay wallet. One row, whose unique key
 * is the payer's nonce, is written before anything is broadcast. However many requests and processes there are, only
 * one creates the row, and the others find it.
 */
import { createHash, randomUUID } from "node:crypto"
import { sql, type UpdateObject } from "kysely"
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { type RelayRow, relayRow, writeRelays } from "../../ledger/relays/accept-relay.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Database, Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { newId } from "../../platform/ids.ts"
import { withinBalance } from "./check-in-flight.ts"
import { type Checked, checkPayment, matchPrice, type Prices } from "./check-payment.ts"
import { LEASE_S } from "./lease-settlement.ts"
import type { Payment, Price } from "./protocol.ts"
import { readSettlement, resolveOutcome } from "./read-outcome.ts"
import type { Refusal } from "./reasons.ts"
import { settlementColumns } from "./settlement-columns.ts"
import { scannedOf, writeFirstClaim } from "./write-claims.ts"

/**
 * How long before the end of an authorization its relay must be signed, in milliseconds, so that it can be mined in
 * time.
 */
const LAST_SIGNED_MS = 3_000
/**
 * How long a relay may wait to be signed before it is cancelled. By then nobody waits for it any more, and its buyer
 * may have bought elsewhere.
 */
const MAX_QUEUED_MS = 300_000

/**
 * The last second that a Date can express. Wallets sign 2^256 - 1 for "no end", which no timestamp column can store.
 */
const LAST_SECOND = 8_640_000_000_000n
const asTime = (seconds: bigint): bigint => (seconds < LAST_SECOND ? seconds : LAST_SECOND)
/** How many rounds a request tries. A round ends without a result if another request was faster. */
const MAX_ROUNDS = 5

/** A price, and who is paid: one of our receiving addresses, or, at the facilitator, a third party. */
export type Offered = Price & {
  deposit?: Pick<Row<"deposits">, "id" | "factory" | "older_factory" | "resource_id">
  /** When the offer at this address ends. No relay is signed after that. */
  soldUntil?: Date
}

/** What a payment is for. */
export interface Sale {
  merchantId: string
  network: Network
  /** Identifies what is paid for. The same for all requests that one payment may serve. */
  binding: string
  prices: Prices<Offered>
  /** The purpose for which the payer is screened, for the log. */
  purpose: string
  /** Where the request came from; see `callerOf`. */
  caller: string
  /** Why nothing is sold now. Earlier payments are still served. */
  closed?: ApiError | undefined
  /** Why this is no longer sold, although something else is. Earlier payments are still served. */
  over?: Refusal | undefined
  /** Called after the payment passed all checks and before anything is written. Throws to refuse the payment. */
  onProven?: () => void
}

/** The SHA-256, in hex, of what a payment is for. */
export const bindingOf = (...parts: string[]): string =>
  createHash("sha256").update(JSON.stringify(parts)).digest("hex")

/** The row of a payment, and the claim of this request. */
export interface Claimed {
  settlement: Row<"settlements">
  /** The claim with which only this request may serve the purchase, as long as its lease lasts. */
  claimId: string
  /** Whether the caller gave the payment a secret id of its own. */
  isIdentified: boolean
}

/**
 * Claims a payment: creates its row and relay, or finds the existing ones. Returns a refusal and writes nothing if
 * the payment is refused. Throws `AUTHORIZATION_ALREADY_USED` if the payment is for another request,
 * `PAYMENT_IDENTIFIER_USED`, `PAYMENTS_PAUSED`, and the errors of `checkPayment`.
 */
export async function claimPayment(ctx: Context, sale: Sale, payment: Payment): Promise<Claimed | Refusal> {
  const claimId = randomUUID()
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const known = await knownPayment(ctx, sale, payment)
    // A cancelled relay moved nothing, but a third party may have executed the authorization.
    if (known && !(known.isOver && (await isUnpaid(ctx, sale.network, known.row.id)))) {
      if (!known.isSame) throw paysAnother()
      return { settlement: known.row, claimId, isIdentified: known.isIdentified }
    }
    if (sale.closed) throw sale.closed
    if (sale.over) return sale.over
    const price = matchPrice(ctx, sale.prices, payment)
    if ("reason" in price) return price
    const written = await withinBalance(ctx, sale.network, payment, async () => {
      const checked = await checkPayment(ctx, sale.network, payment, sale)
      if ("reason" in checked) return checked
      sale.onProven?.()
      return await writeClaim(ctx, sale, payment, { price, checked, claimId, before: known?.row })
    })
    if (!written) continue
    if ("reason" in written) {
      // Another request with this payment was faster, so the transfer of that request may be the cause of the
      // refusal.
      if (!known && (await rowOf(ctx, sale, payment))) continue
      return written
    }
    if (price.deposit) await watch(ctx, price.deposit.resource_id)
    await ctx.wakes.wake("payouts")
    return { settlement: written, claimId, isIdentified: payment.identifier !== undefined }
  }
  throw new ApiError("AUTHORIZATION_ALREADY_USED")
}

interface Known {
  row: Row<"settlements">
  /**
   * Whether the claim's relay was cancelled before it was signed. Nothing moved in that case, and the authorization
   * may be claimed again.
   */
  isOver: boolean
  /** Whether the row was created by this same payment and for the same thing. */
  isSame: boolean
  isIdentified: boolean
}

const paysAnother = () =>
  new ApiError("AUTHORIZATION_ALREADY_USED", undefined, "This authorization pays for another request.")

/** Whether nobody executed the settlement's authorization. */
async function isUnpaid(ctx: Context, network: Network, id: string): Promise<boolean> {
  const row = await readSettlement(ctx, id)
  return row !== undefined && (await resolveOutcome(ctx, network, row)).state === "failed"
}

/** The row that this payment created earlier; undefined if the payment is new. */
async function knownPayment(ctx: Context, sale: Sale, payment: Payment): Promise<Known | undefined> {
  const row = await rowOf(ctx, sale, payment)
  if (payment.identifier !== undefined) {
    const named = await namedPayment(ctx, sale, payment)
    if (named && named.payload_hash !== payment.hash) throw new ApiError("PAYMENT_IDENTIFIER_USED")
  }
  if (!row) return undefined
  const isOver = row.payout_state === "cancelled" && row.found_hash === null
  const isSame = row.payload_hash === payment.hash && row.binding === sale.binding
  if (!isSame && !isOver) throw paysAnother()
  return { row, isOver, isSame, isIdentified: row.identifier !== null && row.identifier === payment.identifier }
}

const rowOf = (ctx: Context, { network }: Pick<Sale, "network">, { authorization: { from, nonce } }: Payment) =>
  rowsOf(ctx, keyOf(network.chainId, network.token.address, from, nonce))

const keyOf = (chainId: number, ...rest: (Address | Hash)[]): string => [chainId, ...rest].join()

type Found = Row<"settlements"> & { payout_state: Row<"payouts">["state"] }

const rowsOf = gatherBy(async (ctx: Context, keys: readonly string[]): Promise<Map<string, Found>> => {
  const wanted = keys.map(key => {
    const [chain_id, token, payer, nonce] = key.split(",")
    return { chain_id, token, payer, nonce }
  })
  // Looks up each row separately. For a list of rows, Postgres scanned the table, which took 1.8 ms with a few
  // hundred settlements.
  const { rows } = await sql<Found>`
    /* named: known_settlements */ select ${settlementColumns}, i.state as payout_state
    from (${rowsParameter(wanted, "chain_id integer, token text, payer text, nonce text")}) k
      join settlements s on s.chain_id = k.chain_id and s.token = k.token and s.payer = k.payer and s.nonce = k.nonce
      join payouts i on i.id = s.payout_id`.execute(ctx.db)
  return new Map(rows.map(row => [keyOf(row.chain_id, row.token, row.payer, row.nonce), row]))
})

/** The columns about the end of an earlier relay, all of which a new relay clears. */
const unended = {
  found_hash: null,
  found_block: null,
  found_final: false,
  failed_at: null,
  served_at: null,
  answered_at: null,
  retry_until: null,
}

/**
 * What to write for a payment that passed the checks. `before`: the payment's row, if an earlier relay was cancelled.
 */
interface Accepted {
  price: Offered
  checked: Checked
  claimId: string
  before: Row<"settlements"> | undefined
}

/** Writes the relay and the row of the settlement; undefined if another request was faster. */
async function writeClaim(
  ctx: Context,
  sale: Sale,
  payment: Payment,
  { price, checked, claimId, before }: Accepted,
): Promise<Row<"settlements"> | undefined> {
  const { network, merchantId, binding } = sale
  const { authorization, identifier, hash } = payment
  const { digest, relay } = checked
  const { from: payer, nonce, to, value, validBefore } = authorization
  const ends = [Number(validBefore) * 1_000 - LAST_SIGNED_MS, price.soldUntil?.getTime() ?? Number.POSITIVE_INFINITY]
  const relayBy = new Date(Math.min(...ends, ctx.now().getTime() + MAX_QUEUED_MS))
  const target = price.deposit ? { depositId: price.deposit.id } : { merchantId }
  const facts = { kind: "settle" as const, authorization, digest, relayBy, to: target }
  const claim = {
    merchant_id: merchantId,
    resource_id: price.deposit?.resource_id ?? null,
    binding,
    payload_hash: hash,
    identifier: identifier ?? null,
    // The digest covers everything that was signed, because after a cancelled relay, a nonce may come back with
    // another amount or payee.
    digest,
    pay_to: to,
    amount: value,
    valid_before: asTime(validBefore),
    payout_id: relay.id,
    claim_id: claimId,
    caller: sale.caller,
    updated_at: ctx.now(),
  }
  const key = { chain_id: network.chainId, token: network.token.address, payer, nonce }
  let written: Row<"settlements"> | undefined
  try {
    written = before
      ? await claimAgain(ctx, before, relayRow(ctx, network, relay, facts), { ...claim, ...unended, ...begun(network) })
      : await writeFirstClaim(ctx, {
          relay: relayRow(ctx, network, relay, facts),
          settlement: { ...claim, ...key, id: newId("set"), created_at: ctx.now() },
        })
  } catch (error) {
    // Postgres unique_violation: another payment took the identifier.
    if ((error as { code?: unknown }).code !== "23505") throw error
  }
  if (written) return written
  const row = await rowOf(ctx, sale, payment)
  if (row && row.payout_id !== before?.payout_id) return undefined
  // Either a checkout's relay has this nonce, or a payment with another nonce took the identifier. The next round
  // finds out which.
  if (identifier === undefined || !(await namedPayment(ctx, sale, payment)))
    throw new ApiError("AUTHORIZATION_ALREADY_USED")
  return undefined
}

/** Replaces a claim whose relay was cancelled; undefined if another request was faster. */
async function claimAgain(
  ctx: Context,
  before: Row<"settlements">,
  relay: RelayRow,
  claim: UpdateObject<Database, "settlements">,
): Promise<Row<"settlements"> | undefined> {
  const lost = new Error("another request was quicker")
  return await inTransaction(ctx, async ctx => {
    if ((await writeRelays(ctx, [relay])).size === 0) throw lost
    const written = await ctx.db
      .updateTable("settlements")
      .set(claim)
      .where("id", "=", before.id)
      .where("payout_id", "=", before.payout_id)
      .returningAll()
      .executeTakeFirst()
    if (!written) throw lost
    return written
  }).catch(error => {
    if (error === lost) return undefined
    throw error
  })
}

/** The columns of a claim that the database computes when it writes the claim. */
const begun = ({ chainId }: NetworkInfo) => ({
  from_block: scannedOf(sql`${chainId}::integer`),
  lease_until: sql<Date>`clock_timestamp() + make_interval(secs => ${LEASE_S})`,
})

/** Finds the payment to which this caller gave the identifier. At the facilitator, the caller is the merchant. */
function namedPayment(
  ctx: TxContext,
  { prices: [{ deposit }], merchantId }: Sale,
  { identifier, authorization: { from } }: Payment,
): Promise<Pick<Row<"settlements">, "id" | "payload_hash"> | undefined> {
  return ctx.db
    .selectFrom("settlements")
    .select(["id", "payload_hash"])
    .where(sql<boolean>`coalesce(resource_id, merchant_id) = ${deposit?.resource_id ?? merchantId}`)
    .where(sql<boolean>`case when resource_id is null then '' else payer::text end = ${deposit ? from : ""}`)
    .where("identifier", "=", identifier ?? "")
    .executeTakeFirst()
}
