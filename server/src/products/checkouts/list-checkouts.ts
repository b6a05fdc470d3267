/** Lists a merchant's checkouts by filter, in pages and as CSV. */
import { type SelectQueryBuilder, sql } from "kysely"
import { type CheckoutFilter, checkoutConditions, hasTerm, isTerm, termOf } from "../../ledger/books/checkout-filter.ts"
import { parseAddress, parseHash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { PaymentException } from "../../platform/db/columns.ts"
import type { Database, Row, SessionStatus } from "../../platform/db/schema.ts"
import { csv, quoted } from "../../platform/http/send-csv.ts"
import { type ListSource, newestFirst } from "../../platform/http/send-lists.ts"
import { timeAt } from "../../platform/http/time.ts"

/** The filter of the list, as unparsed text. */
export interface SessionFilter extends CheckoutFilter {
  status?: SessionStatus | undefined
  exception?: PaymentException | undefined
  from?: string | undefined
  to?: string | undefined
  q?: string | undefined
}

/** The merchant's matching checkouts, newest first. */
export function checkoutsOf(
  ctx: TxContext,
  merchantId: string,
  filter: SessionFilter,
): ListSource<Row<"checkout_sessions">> {
  const { status, exception, from, to, q } = filter
  const [field, ...others] = Object.entries(filter.metadata ?? fieldOf(q))
  const sessions = ctx.db.selectFrom("checkout_sessions").selectAll("checkout_sessions")
  const conditions = [...checkoutConditions(ctx.chain, merchantId, filter), ...others.map(hasTerm)]
  let query = sessions.where("checkout_sessions.merchant_id", "=", merchantId)
  if (status !== undefined) query = query.where("status", "=", status)
  if (exception !== undefined) query = query.where("exception", "=", exception)
  for (const condition of [...conditions, ...matching(ctx, merchantId, q)]) query = query.where(condition)
  if (field === undefined) return newestFirst(between(query, "checkout_sessions", from, to))
  // The index of the field's rows follows the order of the list, however many rows have that value.
  const joined = (
    query as unknown as SelectQueryBuilder<Database, "checkout_sessions" | "checkout_terms", Row<"checkout_sessions">>
  )
    .innerJoin("checkout_terms", "checkout_terms.session_id", "checkout_sessions.id")
    .where(isTerm(merchantId, field))
  const order = { at: "checkout_terms.created_at", id: "checkout_terms.session_id" }
  const { read, ...source } = newestFirst(between(joined, "checkout_terms", from, to) as never, order)
  type Joined = Row<"checkout_sessions"> & { session_id: string }
  return {
    ...source,
    key: { at: "created_at", id: "id", isNumber: false },
    read: async (last, limit, offset) => {
      const after = last && ({ ...last, session_id: last.id } satisfies Joined)
      return (await read(after as never, limit, offset)) as Row<"checkout_sessions">[]
    },
  }
}

function between<T extends keyof Database, O>(
  query: SelectQueryBuilder<Database, T, O>,
  table: "checkout_sessions" | "checkout_terms",
  from: string | undefined,
  to: string | undefined,
): SelectQueryBuilder<Database, T, O> {
  const at = sql.ref(`${table}.created_at`)
  let found = query
  if (from !== undefined) found = found.where(sql<boolean>`${at} >= ${timeAt("from", from)}`)
  if (to !== undefined) found = found.where(sql<boolean>`${at} < ${timeAt("to", to)}`)
  return found
}

/** The metadata field that a search text names as `key:value`. */
function fieldOf(q: string | undefined): Record<string, string> {
  const [, key, value] = /^([^:\s][^:]{0,199}):\s*(\S.*)$/s.exec(q ?? "") ?? []
  return key !== undefined && value !== undefined ? { [key]: value } : {}
}

/** SQL: what a search text matches depends on its form; by default, it matches a metadata value. */
function matching({ chain }: TxContext, merchantId: string, q: string | undefined) {
  if (q === undefined || Object.keys(fieldOf(q)).length > 0) return []
  const id = sql.ref("checkout_sessions.id")
  const chains = sql.join(chain.networks.map(({ chainId }) => sql.lit(chainId)))
  const hash = parseHash(q)
  if (hash)
    return [
      sql<boolean>`${id} = any(array(select d.resource_id from transfers t join deposits d on d.id = t.deposit_id
          where t.chain_id in (${chains}) and t.tx_hash = ${hash}
        union select u.resource_id from submissions u where u.chain_id in (${chains}) and u.tx_hash = ${hash}
        union select i.escrow_id from payouts i where i.tx_hash = ${hash} and i.escrow_id is not null))`,
    ]
  const address = parseAddress(q)
  if (address)
    return [
      sql<boolean>`(checkout_sessions.payer = ${address} or ${id} = any(array(
        select d.resource_id from deposits d where d.chain_id in (${chains}) and d.address = ${address})))`,
    ]
  if (/^cs_[a-z0-9]{24}$/.test(q)) return [sql<boolean>`${id} = ${q}`]
  if (/^pay_[a-z0-9]{24}$/.test(q))
    return [sql<boolean>`${id} = (select p.resource_id from payments p where p.id = ${q})`]
  if (/^[^@\s]+@[^@\s]+$/.test(q)) return [sql<boolean>`lower(checkout_sessions.customer_email) = ${q.toLowerCase()}`]
  return [
    sql<boolean>`${id} = any(array(select f.session_id from checkout_terms f where f.merchant_id = ${merchantId} and f.value = ${termOf(q)}
      order by f.key desc, f.created_at desc, f.session_id desc limit ${sql.lit(MAX_BY_VALUE)}))`,
  ]
}

/** The most checkouts that a search for a metadata value finds if no key is given: the newest of each key. */
const MAX_BY_VALUE = 1_000

const columns = [
  "id",
  "status",
  "exception",
  "capture",
  "amount",
  "amountReceived",
  "currency",
  "chain",
  "description",
  "slug",
  "productId",
  "customerEmail",
  "payer",
  "txHash",
  "metadata",
  "createdAt",
  "confirmedAt",
  "expiresAt",
] as const

/** The part of a checkout's answer that its CSV row shows. */
interface Shown
  extends Record<
    "id" | "status" | "capture" | "amount" | "amountReceived" | "currency" | "chain" | "createdAt" | "expiresAt",
    string
  > {
  exception: string | null
  description: string | null
  slug: string | null
  productId: string | null
  customerEmail: string | null
  payer: string | null
  txHash: string | null
  metadata: Record<string, unknown> | null
  confirmedAt: string | null
}

/** All matching checkouts as CSV, newest first; `show` formats rows as answers. */
export function checkoutsCsv(
  ctx: TxContext,
  merchantId: string,
  filter: SessionFilter,
  show: (rows: Row<"checkout_sessions">[]) => Promise<Shown[]>,
): AsyncGenerator<string> {
  const source = checkoutsOf(ctx, merchantId, filter)
  return csv(
    columns,
    async (rows: Row<"checkout_sessions">[]) =>
      (await show(rows)).map(row => ({
        ...row,
        description: quoted(row.description),
        customerEmail: quoted(row.customerEmail),
        metadata: row.metadata && quoted(JSON.stringify(row.metadata)),
      })),
    (last, limit) => source.read(last, limit, 0),
  )
}
