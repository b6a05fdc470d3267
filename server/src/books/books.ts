/** The merchant's books: every log into and out of its deposits with its reason, in pages and as CSV. */
import { type RawBuilder, sql } from "kysely"
import { type Address, checksummed, parseAddress, ZERO_ADDRESS } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { csv } from "../http/csv.ts"
import type { ListSource } from "../http/lists.ts"
import { timeAt } from "../http/time.ts"
import { ifKind, payoutIdOf } from "../ids.ts"
import { formatAmount } from "../money/amount.ts"

/** What narrows the list; text as received. */
export interface BookFilter {
  from?: string | undefined
  to?: string | undefined
  deposit?: string | undefined
  paywallId?: string | undefined
  sessionId?: string | undefined
}

const columns = [
  "at",
  "direction",
  "reason",
  "paymentStatus",
  "exception",
  "amountIn",
  "amountOut",
  "balance",
  "currency",
  "token",
  "chain",
  "deposit",
  "from",
  "to",
  "txHash",
  "blockNumber",
  "status",
  "paymentId",
  "payoutId",
  "paywallId",
  "sessionId",
  "id",
] as const

type Entry = Row<"books"> & {
  balance: bigint | null
  /** The receiving address, or the escrow's contract. */
  deposit: Address
  resource_id: string
  /** Of an escrow: the wallet that gets what is captured, and pays refunds. */
  receiver: Address | null
  claimed_by: string | null
  payment_status: Row<"payments">["status"] | null
  exception: Row<"payments">["exception"]
}

/** A filter whose deposits or escrows are resolved, so that one index answers; both null: all of them. */
interface Found extends Pick<BookFilter, "from" | "to"> {
  merchantId: string
  deposits: bigint[] | null
  escrows: string[] | null
  /**
   * Whether the list is for one deposit or escrow. Only then the balance is included: the sum over all deposits of a merchant
   * would be read each time.
   */
  withBalance: boolean
}

async function find(ctx: TxContext, merchantId: string, filter: BookFilter): Promise<Found> {
  const { deposit, paywallId, sessionId, from, to } = filter
  const withBalance = deposit !== undefined
  const found = { from, to, merchantId, withBalance, deposits: null, escrows: null }
  if (deposit === undefined && paywallId === undefined && sessionId === undefined) return found
  const address = deposit === undefined ? undefined : (parseAddress(deposit) ?? ZERO_ADDRESS)
  let query = ctx.db.selectFrom("deposits").select("id").where("merchant_id", "=", merchantId)
  if (address !== undefined) query = query.where("address", "=", address)
  if (paywallId !== undefined) query = query.where("resource_id", "=", paywallId)
  if (sessionId !== undefined) query = query.where("resource_id", "=", sessionId)
  const deposits = await query.execute()
  if (deposits.length > 0 || paywallId !== undefined) return { ...found, deposits: deposits.map(({ id }) => id) }
  let held = ctx.db.selectFrom("escrows").select("session_id as id").where("merchant_id", "=", merchantId)
  if (address !== undefined) held = held.where("escrow", "=", address)
  if (sessionId !== undefined) held = held.where("session_id", "=", sessionId)
  return { ...found, escrows: (await held.execute()).map(({ id }) => id) }
}

/** The rows of the books that match. `from` and `to` are instants: from ≤ at < to. */
function passing({ merchantId, deposits, escrows, withBalance, from, to }: Found): RawBuilder<unknown> {
  const balance = withBalance
    ? sql`sum(case direction when 'in' then amount when 'out' then -amount else 0 end) over (partition by deposit_id, token order by at, id)`
    : sql`null::numeric`
  const where = [
    sql`merchant_id = ${merchantId}`,
    ...(deposits ? [sql`deposit_id = any(${sqlArray("bigint", deposits)})`] : []),
    ...(escrows ? [sql`escrow_id = any(${sqlArray("text", escrows)})`] : []),
  ]
  const times = [
    ...(from !== undefined ? [sql`at >= ${timeAt("from", from)}`] : []),
    ...(to !== undefined ? [sql`at < ${timeAt("to", to)}`] : []),
  ]
  return sql`(select * from (select books.*, ${balance} as balance from books where ${sql.join(where, sql` and `)}) listed
    where ${sql.join([sql`true`, ...times], sql` and `)})`
}

/** The rows that match the filter, newest first. */
export async function booksOf(ctx: TxContext, merchantId: string, filter: BookFilter): Promise<ListSource<Entry>> {
  const rows = passing(await find(ctx, merchantId, filter))
  return {
    key: { at: "at", id: "id", isNumber: false },
    all: sql`select 1 from ${rows} b`,
    read: async (last, limit, offset) => {
      const after = last ? sql`(select * from ${rows} f where (at, id) < (${last.at}, ${last.id}))` : rows
      return await read(ctx, after, sql`limit ${limit} offset ${offset}`)
    },
  }
}

async function read(ctx: TxContext, rows: RawBuilder<unknown>, part: RawBuilder<unknown>): Promise<Entry[]> {
  const found = await sql<Entry>`
    select b.*, coalesce(d.address, e.escrow) as deposit, coalesce(d.resource_id, b.escrow_id) as resource_id,
      e.receiver, c.payment_id as claimed_by, p.status as payment_status,
      p.exception
    from (select * from ${rows} r order by at desc, id desc ${part}) b
      left join deposits d on d.id = b.deposit_id
      left join escrows e on e.session_id = b.escrow_id
      left join claims c on c.transfer_id = b.transfer_id
      left join payments p on p.id = coalesce(b.payment_id, c.payment_id)
    order by b.at desc, b.id desc`.execute(ctx.db)
  return found.rows
}

/** A row of the books in the API's form. */
export function entryOf(ctx: TxContext, row: Entry) {
  const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
  const isSettlement = row.token === token.address
  const text = (amount: bigint) =>
    isSettlement
      ? `${amount < 0n ? "-" : ""}${formatAmount(amount < 0n ? -amount : amount, token.decimals)}`
      : `${amount}`
  const paymentId = row.payment_id ?? row.claimed_by
  return {
    at: row.at.toISOString(),
    direction: row.direction,
    reason: row.reason ?? (paymentId === null ? ("unclaimed" as const) : ("payment" as const)),
    paymentStatus: row.payment_status,
    exception: row.exception,
    amountIn: row.direction === "out" ? null : text(row.amount),
    amountOut: row.direction === "in" ? null : text(row.amount),
    balance: row.balance === null ? null : text(row.balance),
    currency: isSettlement ? token.symbol : null,
    token: checksummed(row.token),
    chain,
    deposit: checksummed(row.deposit),
    // A refund comes out of the wallet that got the payment.
    from: checksummed((row.direction === "through" ? row.receiver : row.sender) ?? row.deposit),
    to: checksummed(row.recipient),
    txHash: row.tx_hash,
    blockNumber: row.block_number?.toString() ?? null,
    status: row.state,
    paymentId,
    payoutId: row.payout_id && payoutIdOf(row.payout_id),
    paywallId: ifKind("pw", row.resource_id),
    sessionId: ifKind("cs", row.resource_id),
    id: row.id,
  }
}

/** All rows that match the filter as CSV, newest first. */
export async function* booksCsv(ctx: TxContext, merchantId: string, filter: BookFilter): AsyncGenerator<string> {
  const books = await booksOf(ctx, merchantId, filter)
  yield* csv<Entry, (typeof columns)[number]>(
    columns,
    rows => rows.map(row => entryOf(ctx, row)),
    (last, limit) => books.read(last, limit, 0),
  )
}
