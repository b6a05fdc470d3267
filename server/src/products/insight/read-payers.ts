/** A merchant's payers: their payments, refunds, subscriptions and access. */
import { type RawBuilder, sql } from "kysely"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { type Address, checksummed, parseAddress } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import type { ListSource } from "../../platform/http/send-lists.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { FOREVER } from "../paywalls/grant.ts"

/** The most wallets shown for an e-mail address, and the most subscriptions or grants shown for a payer. */
const MAX_SHOWN = 100

interface PayerRow {
  id: string
  payer: Address
  created_at: Date
}

/** SQL: the wallets that paid for a checkout or subscription with this e-mail address. */
const walletsOf = (merchantId: string, email: string) => sql`(
  select payer from checkout_sessions where merchant_id = ${merchantId} and lower(customer_email) = ${email.toLowerCase()} and payer is not null
  union select payer from subscriptions where merchant_id = ${merchantId} and lower(customer_email) = ${email.toLowerCase()}
    and started_at is not null and payer is not null limit ${sql.lit(MAX_SHOWN)})`

/** The payers, sorted by newest payment; `q` is a wallet address or an e-mail address. */
export function payersOf({ db }: TxContext, merchantId: string, q: string | undefined): ListSource<PayerRow> {
  const address = q === undefined ? undefined : parseAddress(q)
  const isAsked = (payer: string) =>
    q === undefined
      ? sql`true`
      : address
        ? sql`${sql.ref(payer)} = ${address}`
        : sql`${sql.ref(payer)} = any(array(${walletsOf(merchantId, q)}))`
  /** Whether the payer has paid nothing later. */
  const isNewest = (payer: string, at: string, id: string) => sql`
    not exists (select from payments n where n.merchant_id = ${merchantId} and n.payer = ${sql.ref(payer)}
      and (n.created_at, n.id) > (${sql.ref(at)}, ${sql.ref(id)}))
    and not exists (select from escrows n where n.merchant_id = ${merchantId} and n.payer = ${sql.ref(payer)}
      and n.authorized > 0 and (n.authorized_at, n.session_id) > (${sql.ref(at)}, ${sql.ref(id)}))`
  const isAfter = (last: PayerRow | undefined, at: string, id: string) =>
    last === undefined ? sql`true` : sql`(${sql.ref(at)}, ${sql.ref(id)}) < (${last.created_at}, ${last.id})`
  // The order and the end are in each part, so that each reads no more of its index than the page needs.
  const rows = (last: PayerRow | undefined, end: RawBuilder<unknown>, most: RawBuilder<unknown>) => sql<PayerRow>`
    (select p.id, p.payer, p.created_at from payments p where p.merchant_id = ${merchantId} and ${isAsked("p.payer")}
      and ${isNewest("p.payer", "p.created_at", "p.id")} and ${isAfter(last, "p.created_at", "p.id")}
      order by p.created_at desc, p.id desc ${most})
    union all
    (select e.session_id, e.payer, e.authorized_at from escrows e
      where e.merchant_id = ${merchantId} and e.authorized > 0 and ${isAsked("e.payer")}
      and ${isNewest("e.payer", "e.authorized_at", "e.session_id")} and ${isAfter(last, "e.authorized_at", "e.session_id")}
      order by e.authorized_at desc, e.session_id desc ${most}) ${end}`
  return {
    key: { at: "created_at", id: "id", isNumber: false },
    all: rows(undefined, sql``, sql``),
    read: async (last, limit, offset) => {
      const end = sql`order by created_at desc, id desc limit ${limit} offset ${offset}`
      return (await rows(last, end, sql`limit ${limit + offset}`).execute(db)).rows
    },
  }
}

interface Sum {
  payer: Address
  chain_id: number
  token: Address
  count: number
  paid: bigint
  returned: bigint
  open: bigint
  reserved: bigint
}

/** The sums of each payer's payments, by network and token. Captured money counts as paid, less its refunds. */
async function sumsOf({ db }: TxContext, merchantId: string, payers: readonly Address[]): Promise<Sum[]> {
  // An overpayment counts as paid only if the merchant kept it.
  const surplus = (state: "open" | "returned") => sql`case when s.state = ${sql.lit(state)} then s.amount else 0 end`
  const over = sql`(${surplus("open")} + ${surplus("returned")})`
  const { rows } = await sql<Sum>`
    select payer, chain_id, token, sum(count)::int as count, sum(paid)::numeric(78,0) as paid,
      sum(returned)::numeric(78,0) as returned, sum(open)::numeric(78,0) as open, sum(reserved)::numeric(78,0) as reserved
    from (
    select p.payer, p.chain_id, p.token, count(*)::int as count,
      coalesce(sum(p.amount - ${over}) filter (where p.status = 'granted'), 0)::numeric(78,0) as paid,
      coalesce(sum(case p.status when 'returned' then p.amount when 'granted' then ${surplus("returned")} end), 0)::numeric(78,0) as returned,
      coalesce(sum(case p.status when 'open' then p.amount when 'granted' then ${surplus("open")} end), 0)::numeric(78,0) as open,
      0 as reserved
    from payments p left join surpluses s on s.payment_id = p.id
    where p.merchant_id = ${merchantId} and p.payer = any(${sqlArray("text", payers)})
    group by p.payer, p.chain_id, p.token
    union all
    select payer, chain_id, token, count(*)::int, sum(captured - refunded), sum(refunded), 0,
      sum(authorized - captured - voided - reclaimed)
    from escrows where merchant_id = ${merchantId} and payer = any(${sqlArray("text", payers)}) and authorized > 0
    group by payer, chain_id, token) both_kinds
    group by payer, chain_id, token order by payer, chain_id, token`.execute(db)
  return rows
}

/** Payers in the API's form. */
export async function shownPayers(ctx: TxContext, merchantId: string, rows: readonly PayerRow[]) {
  const sums = await sumsOf(
    ctx,
    merchantId,
    rows.map(({ payer }) => payer),
  )
  const format = await amountFormatter(ctx, sums)
  return rows.map(({ payer, created_at }) => ({
    address: checksummed(payer),
    lastPaidAt: created_at.toISOString(),
    totals: sums
      .filter(sum => sum.payer === payer)
      .map(sum => {
        const { currency, decimals } = format({ ...sum, amount: 0n })
        const text = (amount: bigint) => format({ ...sum, amount }).amount
        return {
          chain: networkOf(ctx.chain, sum.chain_id).name,
          token: checksummed(sum.token),
          currency,
          decimals,
          payments: sum.count,
          paid: text(sum.paid),
          returned: text(sum.returned),
          open: text(sum.open),
          reserved: text(sum.reserved),
        }
      }),
  }))
}

/** One payer by wallet address, or all wallets of an e-mail address; throws `NOT_FOUND` for a payer who never paid. */
export async function readPayer(ctx: TxContext, merchantId: string, who: string) {
  const address = parseAddress(who)
  const isEmail = /^[^@\s]+@[^@\s]+$/.test(who)
  if (!address && !isEmail) throw new ApiError("NOT_FOUND")
  const payers = await payersOf(ctx, merchantId, who).read(undefined, MAX_SHOWN, 0)
  const escrows = await escrowsOf(ctx, merchantId, address, who)
  const wallets = [...new Set([...(address ? [address] : []), ...payers.map(({ payer }) => payer)])]
  const [subscriptions, access] = await Promise.all([
    subscriptionsOf(ctx, merchantId, wallets),
    accessOf(ctx, merchantId, wallets),
  ])
  if (payers.length + escrows.length + subscriptions.length === 0) throw new ApiError("NOT_FOUND")
  return {
    wallets: await shownPayers(ctx, merchantId, payers),
    refunded: refundedOf(ctx, escrows),
    subscriptions: subscriptions.map(row => ({
      id: row.id,
      status: row.status ?? "active",
      productId: row.product_id,
      paidUntil: row.paid_until?.toISOString() ?? null,
      customerEmail: row.customer_email,
    })),
    access: access.map(row => ({
      paywallId: row.paywall_id,
      name: row.name,
      address: checksummed(row.address),
      expiresAt: row.expires_at && row.expires_at < FOREVER ? row.expires_at.toISOString() : null,
      callsLeft: row.calls_left,
    })),
  }
}

type EscrowRow = PayerRow & Pick<Row<"escrows">, "chain_id" | "captured" | "refunded">

/** Payments through escrow. They have no rows in `payments`. */
async function escrowsOf(
  { db }: TxContext,
  merchantId: string,
  address: Address | undefined,
  who: string,
): Promise<EscrowRow[]> {
  const of = address
    ? sql`s.payer = ${address}`
    : sql`lower(s.customer_email) = ${who.toLowerCase()} and s.customer_email is not null`
  const { rows } = await sql<EscrowRow>`
    select e.session_id as id, e.payer, coalesce(e.authorized_at, e.created_at) as created_at, e.chain_id, e.captured, e.refunded
    from checkout_sessions s join escrows e on e.session_id = s.id
    where s.merchant_id = ${merchantId} and ${of} and s.capture <> 'direct' and e.payer is not null and e.authorized > 0
    order by s.created_at desc limit ${sql.lit(MAX_SHOWN)}`.execute(db)
  return rows
}

/** The amounts refunded from escrows, by network. */
function refundedOf({ chain }: TxContext, escrows: readonly EscrowRow[]) {
  return [...Map.groupBy(escrows, ({ chain_id }) => chain_id)].map(([chainId, of]) => {
    const { name, token } = networkOf(chain, chainId)
    const sum = (field: "captured" | "refunded") => of.reduce((total, row) => total + row[field], 0n)
    return {
      chain: name,
      currency: token.symbol,
      captured: formatAmount(sum("captured"), token.decimals),
      refunded: formatAmount(sum("refunded"), token.decimals),
    }
  })
}

const subscriptionsOf = ({ db }: TxContext, merchantId: string, wallets: readonly Address[]) =>
  db
    .selectFrom("subscriptions")
    .selectAll()
    .where(sql<boolean>`payer = any(${sqlArray("text", wallets)})`)
    .where("merchant_id", "=", merchantId)
    .where("started_at", "is not", null)
    .orderBy("started_at", "desc")
    .limit(MAX_SHOWN)
    .execute()

async function accessOf({ db, now }: TxContext, merchantId: string, wallets: readonly Address[]) {
  const { rows } = await sql<
    Pick<Row<"access">, "paywall_id" | "address" | "expires_at" | "calls_left"> & { name: string }
  >`
    select a.paywall_id, w.name, a.address, a.expires_at, a.calls_left
    from (select distinct resource_id, payer from payments where merchant_id = ${merchantId} and payer = any(${sqlArray("text", wallets)})
        and starts_with(resource_id, 'pw_')) p
      join access a on a.paywall_id = p.resource_id and a.address = p.payer join paywalls w on w.id = a.paywall_id
    where w.merchant_id = ${merchantId} and a.expires_at > ${now()} and a.tx_hash is not null and coalesce(a.calls_left > 0, true)
    order by w.name, a.address limit ${sql.lit(MAX_SHOWN)}`.execute(db)
  return rows
}
