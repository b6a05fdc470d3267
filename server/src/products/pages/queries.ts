/** Reads the rows for the pages. Concurrent reads share each statement, however many there are. */
import { sql } from "kysely"
import { isArriving } from "../../ledger/relays/try-relay.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { type Face, faceColumns } from "./load-page-base.ts"

/**
 * The most payments or transactions that a page names: the largest payments and the oldest transactions. Strangers
 * can send any number.
 */
export const MAX_SHOWN = 10

/** The key for what arrived: parts without spaces, joined by spaces. */
export const arrivalKey = (...parts: string[]): string => parts.join(" ")

/** What a checkout's page shows in addition to its state. */
export interface AskedFacts {
  id: string
  merchant: string
  chain: number
  /** The settlement token. */
  token: Address
  /** The relay wallet; undefined if there is none. */
  relayer: Address | undefined
}

/** What a checkout's page shows. Amounts are in base units of the token. */
interface CheckoutFacts extends Face {
  /** The sum that is on chain at the address but not deep enough; null for an escrow. */
  seen: bigint | null
  /** The sum of the money at the address that counts, or will count once it is confirmed. */
  arriving: bigint | null
  /** Whether a relay may still move money to the address. */
  relaying: boolean
  /** These two are from the network's cursor, and null before the first round. */
  looked_at: Date | null
  interval_ms: number | null
  /** The status of the relay wallet. */
  relayer: Row<"wallets">["status"] | null
}

/** The facts of a checkout's page. */
export const checkoutFacts = gatherRows(async (db: Db, asked: readonly AskedFacts[]) => {
  const wanted = asked.map((each, n) => ({ n, ...each }))
  const { rows } = await sql<CheckoutFacts & { n: number }>`
    select /* named: checkout_facts */ k.n, ${faceColumns}, t.seen, t.arriving, exists (select from payouts i
        where i.deposit_id = d.id and i.kind = 'authorize' and i.state in ('queued', 'held', 'assigned', 'mined')) as relaying,
      c.looked_at, c.interval_ms, (select w.status from wallets w where w.chain_id = k.chain and w.address = k.relayer) as relayer
    from (${rowsParameter(wanted, "n integer, id text, merchant text, chain integer, token text, relayer text")}) k
      left join merchants m on m.id = k.merchant
      left join branding b on b.merchant_id = m.id
      left join cursors c on c.chain_id = k.chain
      left join deposits d on d.resource_id = k.id
      left join lateral (select
          coalesce(sum(t.value) filter (where t.state = 'seen'), 0)::numeric(78,0) as seen,
          coalesce(sum(t.value) filter (where ${isArriving}), 0)::numeric(78,0) as arriving
        from transfers t left join claims c on c.transfer_id = t.id where t.deposit_id = d.id and t.token = k.token) t
        on d.id is not null`.execute(db)
  return new Map(rows.flatMap(({ n, ...facts }) => (asked[n] ? [[asked[n] as AskedFacts, facts]] : [])))
})

/** A payment or surplus for which the payer may name a return address. Its amount is in base units. */
type WaitingPayment = Pick<Row<"payments">, "id" | "chain_id" | "payer" | "token" | "amount">

/**
 * The money of a session that waits for its merchant, by session and token. Money in that token comes first, then the
 * largest amounts. Money from senders on a sanctions list is left out, because it is never returned.
 */
export const waitingPayments = gatherRows(async (db: Db, keys: readonly string[]) => {
  const wanted = keys.map(key => {
    const [id, token] = key.split(" ")
    return { key, id, token }
  })
  const { rows } = await sql<WaitingPayment & { key: string }>`
    select /* named: waiting_payments */ k.key, w.id, w.chain_id, w.payer, w.token, w.amount
    from (${rowsParameter(wanted, "key text, id text, token text")}) k cross join lateral (
      select p.id, p.chain_id, p.payer, p.token, coalesce(s.amount, p.amount) as amount
      from payments p left join surpluses s on s.payment_id = p.id and p.status = 'granted' and s.state = 'open'
      where p.resource_id = k.id and (p.status = 'open' or s.payment_id is not null)
        and (p.exception is null or p.exception <> 'sanctioned')
      order by p.token <> k.token, coalesce(s.amount, p.amount) desc, p.id limit ${MAX_SHOWN}) w
    order by k.key, w.token <> k.token, w.amount desc, w.id`.execute(db)
  return new Map(
    [...Map.groupBy(rows, row => row.key)].map(([key, of]) => [
      key,
      of.map(({ key: _, ...row }): WaitingPayment => row),
    ]),
  )
})

/** True for a session that had a payment which a reorg removed. */
export const reversedPayment = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("payments")
    .select("resource_id")
    .distinct()
    .where(sql<boolean>`resource_id = any(${sqlArray("text", ids)})`)
    .where("status", "=", "reversed")
    .execute()
  return new Map(rows.map(row => [row.resource_id, true]))
})

/** The payments of one sender to a paywall that have bought nothing yet, in base units. */
interface Open {
  /** On chain but not deep enough. */
  seen: bigint
  confirmed: bigint
}

/** A payer's money that has bought nothing yet, by paywall, token and address. */
export const openOfPayer = gatherRows(async (db: Db, keys: readonly string[]) => {
  const wanted = keys.map(key => {
    const [id, token, payer] = key.split(" ")
    return { key, id, token, payer }
  })
  const { rows } = await sql<Open & { key: string }>`
    select /* named: open_of_payers */ k.key, coalesce(sum(t.value) filter (where t.state = 'seen'), 0)::numeric(78,0) as seen,
      coalesce(sum(t.value) filter (where t.state <> 'seen'), 0)::numeric(78,0) as confirmed
    from (${rowsParameter(wanted, "key text, id text, token text, payer text")}) k
      join deposits d on d.resource_id = k.id
      join transfers t on t.deposit_id = d.id and t.from_address = k.payer and t.token = k.token and t.state <> 'gone'
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where p.id is null or p.status = 'open'
    group by k.key`.execute(db)
  return new Map(rows.map(({ key, ...open }) => [key, open]))
})

/** The invoice that a session pays, with the state of its subscription; undefined for a session without an invoice. */
export const invoiceOfSession = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("invoices")
    .innerJoin("subscriptions", "subscriptions.id", "invoices.subscription_id")
    .selectAll("invoices")
    .select(["subscriptions.status", "subscriptions.access_until"])
    .where(sql<boolean>`invoices.session_id = any(${sqlArray("text", ids)})`)
    .execute()
  return new Map(rows.map(row => [row.session_id, row]))
})
