/**
 * Searches a merchant's objects. The form of the text decides which indexes are used. An id, a hash, an address, an
 * e-mail address or a metadata field is recognized. Any other text is searched as a slug, the start of a name, a
 * metadata value and an amount.
 */
import { type RawBuilder, sql } from "kysely"
import { isAmount, type SettlementAmount, settlementAmounts } from "../../ledger/books/amount-filter.ts"
import { termOf } from "../../ledger/books/checkout-filter.ts"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { type Address, type Hash, parseAddress, parseHash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import { beginning } from "../../platform/db/catalog-conditions.ts"
import { payoutIdOf, rowIdOf } from "../../platform/ids.ts"
import { AmountError } from "../../platform/money/amount.ts"
import { textOf } from "./load-story.ts"
import type { matchTypes } from "./search-schema.ts"

type MatchType = (typeof matchTypes)[number]

/** The most matches that a search returns. */
const MAX_MATCHES = 20

interface MatchRow {
  type: MatchType
  id: string
  matched: string
  chain_id: number | null
  /** The token's address; null for the settlement token. */
  token: Address | null
  amount: bigint | null
  label: string | null
}

/** Finds at most 20 of the merchant's objects, the newest of each kind first. */
export async function findMatches(ctx: TxContext, merchantId: string, q: string) {
  const parts = partsFor(ctx, partsOf(merchantId), q)
  if (parts.length === 0) return []
  const { rows } = await sql<MatchRow>`${sql.join(parts, sql` union all `)}`.execute(ctx.db)
  const seen = new Set<string>()
  const first = rows.filter(({ type, id }) => !seen.has(`${type} ${id}`) && seen.add(`${type} ${id}`))
  return await shownMatches(ctx, first.slice(0, MAX_MATCHES))
}

type Part = RawBuilder<unknown>
type Parts = ReturnType<typeof partsOf>

const limited = sql.raw(`limit ${MAX_MATCHES}`)
/**
 * The kinds of the service's own calls, such as writing receipts. Their rows name a merchant, but none of the
 * merchant's money moves.
 */
const ofNobody = kindsThat(({ moneyOf }) => moneyOf === "nobody")

/** SQL: one query for each kind of object; `where` filters its table. */
function partsOf(merchantId: string) {
  const columns = (type: MatchType, matched: Part) =>
    sql`select ${sql.lit(type)} as type, id::text as id, ${matched}::text as matched`
  const own = (where: Part) => sql`where merchant_id = ${merchantId} and ${where}`
  const none = sql`null::int as chain_id, null::text as token, null::numeric(78,0) as amount`
  const newest = sql`order by created_at desc, id desc ${limited}`
  const sold = (type: MatchType, table: string, name: string) => (where: Part, matched: Part) =>
    sql`(${columns(type, matched)}, ${none}, ${sql.ref(name)} as label from ${sql.table(table)} ${own(where)} ${newest})`
  return {
    payment: (where: Part, matched: Part) =>
      sql`(${columns("payment", matched)}, chain_id, token::text as token, amount::numeric(78,0) as amount, status as label from payments ${own(where)} ${newest})`,
    checkout: (where: Part, matched: Part) =>
      sql`(${columns("checkout", matched)}, chain_id, null::text as token, amount::numeric(78,0) as amount, coalesce(description, status) as label
        from checkout_sessions ${own(where)} ${newest})`,
    // Unordered: if all of a merchant's payouts share a value, such as the address, sorting would read all of them.
    payout: (where: Part, matched: Part) =>
      sql`(${columns("payout", matched)}, chain_id, token::text as token, amount::numeric(78,0) as amount, kind as label from payouts
        ${own(sql`${where} and kind not in ${ofNobody}`)} ${limited})`,
    refund: (where: Part, matched: Part) =>
      sql`(${columns("refund", matched)}, ${none}, status as label from refunds ${own(where)} ${newest})`,
    subscription: (where: Part, matched: Part) =>
      sql`(${columns("subscription", matched)}, ${none}, status as label from subscriptions ${own(where)} and started_at is not null
        order by started_at desc, id desc ${limited})`,
    invoice: (where: Part, matched: Part) =>
      sql`(${columns("invoice", matched)}, null::int as chain_id, null::text as token, null::numeric(78,0) as amount, 'invoice ' || sequence as label
        from invoices ${own(where)} ${newest})`,
    event: (where: Part, matched: Part) =>
      sql`(${columns("event", matched)}, ${none}, type as label from events ${own(where)} ${newest})`,
    delivery: (where: Part, matched: Part) =>
      sql`(${columns("delivery", matched)}, ${none}, status as label from deliveries ${own(where)} ${newest})`,
    paywall: sold("paywall", "paywalls", "name"),
    product: sold("product", "products", "name"),
    paymentLink: sold("payment_link", "payment_links", "title"),
    bundle: sold("bundle", "bundles", "name"),
    split: sold("split", "splits", "name"),
    terms: (key: string | undefined, value: RawBuilder<unknown>) => sql`(
      select 'checkout' as type, s.id, 'metadata ' || t.key as matched, s.chain_id, null::text as token, s.amount::numeric(78,0) as amount,
        coalesce(s.description, s.status) as label
      from (select key, session_id, created_at from checkout_terms where merchant_id = ${merchantId} and value = ${value}
          and ${key === undefined ? sql`true` : sql`key = ${key}`}
        order by key desc, created_at desc, session_id desc ${limited}) t
        join checkout_sessions s on s.id = t.session_id)`,
  }
}

const byId: Record<
  string,
  | "payment"
  | "checkout"
  | "refund"
  | "subscription"
  | "invoice"
  | "event"
  | "delivery"
  | "paywall"
  | "product"
  | "paymentLink"
  | "bundle"
  | "split"
> = {
  pay: "payment",
  cs: "checkout",
  re: "refund",
  sub: "subscription",
  inv: "invoice",
  evt: "event",
  dlv: "delivery",
  pw: "paywall",
  prod: "product",
  plink: "paymentLink",
  bdl: "bundle",
  spl: "split",
}

function partsFor(ctx: TxContext, parts: Parts, q: string): Part[] {
  const hash = parseHash(q)
  if (hash) return hashParts(ctx, parts, hash)
  const address = parseAddress(q)
  if (address) return addressParts(ctx, parts, address)
  if (/^po_[0-9a-f]{32}$/.test(q)) return [parts.payout(sql`id = ${rowIdOf(q)}::uuid`, sql`'id'`)]
  const [, prefix = ""] = /^([a-z]+)_[a-z0-9]{24}$/.exec(q) ?? []
  const kind = Object.hasOwn(byId, prefix) ? byId[prefix] : undefined
  const ofId = kind ? [parts[kind](sql`id = ${q}`, sql`'id'`)] : []
  if (/^[^@\s]+@[^@\s]+$/.test(q)) return [...emailParts(parts, q), parts.terms(undefined, termOf(q))]
  const [, key, value] = /^([^:\s][^:]{0,199}):\s*(\S.*)$/.exec(q) ?? []
  const ofField = key !== undefined && value !== undefined ? [parts.terms(key.trim(), termOf(value))] : []
  return [
    ...ofId,
    ...slugParts(parts, q),
    parts.terms(undefined, termOf(q)),
    ...ofField,
    ...amountParts(ctx, parts, q),
    ...nameParts(parts, q),
  ]
}

const chainIds = ({ chain }: TxContext): Part => sql.join(chain.networks.map(({ chainId }) => sql.lit(chainId)))

function hashParts(ctx: TxContext, parts: Parts, hash: Hash): Part[] {
  const found = sql`'txHash'`
  const paid = sql`id in (
    select d.resource_id from transfers t join deposits d on d.id = t.deposit_id where t.chain_id in (${chainIds(ctx)}) and t.tx_hash = ${hash}
    union select resource_id from submissions where chain_id in (${chainIds(ctx)}) and tx_hash = ${hash})`
  const payouts = sql`id in (select id from payouts where tx_hash = ${hash}
    union select payout_id from transaction_attempts where hash = ${hash})`
  return [parts.payment(sql`tx_hash = ${hash}`, found), parts.checkout(paid, found), parts.payout(payouts, found)]
}

function addressParts(ctx: TxContext, parts: Parts, address: Address): Part[] {
  const at = sql`id in (select resource_id from deposits where chain_id in (${chainIds(ctx)}) and address = ${address})`
  const here = sql`'receiving address'`
  return [
    parts.checkout(at, here),
    parts.paywall(at, here),
    parts.bundle(at, here),
    parts.payment(sql`payer = ${address}`, sql`'payer'`),
    parts.checkout(sql`payer = ${address}`, sql`'payer'`),
    parts.subscription(sql`payer = ${address}`, sql`'payer'`),
    parts.payout(sql`recipient = ${address}`, sql`'recipient'`),
  ]
}

function emailParts(parts: Parts, q: string): Part[] {
  const email = q.toLowerCase()
  return [
    parts.checkout(sql`lower(customer_email) = ${email}`, sql`'customerEmail'`),
    parts.subscription(sql`lower(customer_email) = ${email}`, sql`'customerEmail'`),
  ]
}

function slugParts(parts: Parts, q: string): Part[] {
  if (!/^[a-z0-9-]{3,64}$/.test(q)) return []
  const named = sql`id in (select resource_id from slugs where slug = ${q})`
  return [parts.paywall(named, sql`'slug'`), parts.paymentLink(named, sql`'slug'`), parts.bundle(named, sql`'slug'`)]
}

function nameParts(parts: Parts, q: string): Part[] {
  const begins = (column: string) => sql`lower(${sql.ref(column)}) like ${beginning(q)}`
  return [
    parts.paywall(begins("name"), sql`'name'`),
    parts.product(begins("name"), sql`'name'`),
    parts.paymentLink(begins("title"), sql`'title'`),
    parts.bundle(begins("name"), sql`'name'`),
  ]
}

function amountParts({ chain }: TxContext, parts: Parts, q: string): Part[] {
  // A comma is a decimal sign, unless it may separate thousands, as in `1,000`.
  const [, number] = /^(?![1-9]\d{0,2},\d{3}(?!\d))(\d{1,20}(?:[.,]\d{1,18})?)(?:\s*[A-Za-z]{1,10})?$/.exec(q) ?? []
  if (number === undefined) return []
  // One query per amount, because the index has the rows of each amount in order.
  return amountsOf(chain, number.replace(",", ".")).flatMap(each => [
    parts.payment(isAmount(each, "amount"), sql`'amount'`),
    parts.checkout(
      sql`amount = ${each.amount} and chain_id in (${sql.join(each.networks.map(({ chainId }) => sql.lit(chainId)))})`,
      sql`'amount'`,
    ),
  ])
}

/** What the text means on each network; nothing if it has more decimals than any token. */
function amountsOf({ networks }: TxContext["chain"], text: string): SettlementAmount[] {
  try {
    return settlementAmounts(networks, text)
  } catch (error) {
    if (error instanceof AmountError) return []
    throw error
  }
}

/** The console's page for each type. */
const pages: Record<MatchType, string> = {
  payment: "payments",
  checkout: "payments",
  payout: "payouts",
  refund: "payments",
  subscription: "subscriptions",
  invoice: "invoices",
  event: "events",
  delivery: "deliveries",
  paywall: "paywalls",
  product: "products",
  payment_link: "payment-links",
  bundle: "bundles",
  split: "splits",
}

async function shownMatches(ctx: TxContext, rows: readonly MatchRow[]) {
  const priced = rows.flatMap(row => {
    if (row.chain_id === null || row.amount === null) return []
    const token = row.token ?? networkOf(ctx.chain, row.chain_id).token.address
    return [{ of: row, chain_id: row.chain_id, token, amount: row.amount }]
  })
  const format = await amountFormatter(ctx, priced)
  const amounts = new Map(priced.map(row => [row.of, textOf(format(row))]))
  return rows.map(row => {
    const id = row.type === "payout" ? payoutIdOf(row.id) : row.id
    const amount = amounts.get(row)
    return {
      type: row.type,
      id,
      title: [amount ?? [], row.label ?? []].flat().join(", "),
      matched: row.matched,
      url: `${ctx.settings.consoleUrl}/console/${pages[row.type]}/${id}`,
    }
  })
}
