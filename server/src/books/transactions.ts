/** The merchant's money in one list: filters, pages and the whole as CSV. */

import { sql } from "kysely"
import { checksummed, parseAddress, parseHash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row, WaitingFor } from "../db/schema.ts"
import { csv } from "../http/csv.ts"
import { timeAt } from "../http/time.ts"
import { ifKind, payoutIdOf, rowIdOf } from "../ids.ts"
import { amountFormatter } from "../scanner/tokens.ts"

/** What narrows the list; text as received. */
export interface Filter {
  type?: Row<"transactions">["type"] | undefined
  status?: Row<"transactions">["status"] | undefined
  exception?: WaitingFor | undefined
  /** Only payments that wait, or once waited, for the merchant. */
  exceptional?: boolean
  from?: string | undefined
  to?: string | undefined
  q?: string | undefined
}

const columns = [
  "id",
  "type",
  "status",
  "exception",
  "amount",
  "currency",
  "chain",
  "txHash",
  "payer",
  "recipient",
  "paywallId",
  "sessionId",
  "paymentId",
  "createdAt",
  "token",
  "decimals",
] as const

/**
 * The merchant's transactions that match the filter, not yet ordered. `from` and `to` are instants: from ≤ created <
 * to.
 */
export function transactions(ctx: TxContext, merchantId: string, filter: Filter) {
  let query = ctx.db.selectFrom("transactions").selectAll("transactions").where("merchant_id", "=", merchantId)
  if (filter.type !== undefined) query = query.where("type", "=", filter.type)
  if (filter.status === "open") query = query.where(isWaiting)
  else if (filter.status !== undefined) query = query.where("status", "=", filter.status)
  if (filter.exception !== undefined) query = query.where("exception", "=", filter.exception)
  if (filter.exceptional) query = query.where("exception", "is not", null)
  if (filter.from !== undefined) query = query.where("created_at", ">=", timeAt("from", filter.from))
  if (filter.to !== undefined) query = query.where("created_at", "<", timeAt("to", filter.to))
  if (filter.q === undefined) return query
  // The form of the search text decides what it is, so that one index answers.
  const [hash, address] = [parseHash(filter.q), parseAddress(filter.q)]
  if (hash) return query.where("tx_hash", "=", hash)
  if (address) return query.where(eb => eb.or([eb("payer", "=", address), eb("recipient", "=", address)]))
  if (filter.q.startsWith("po_")) return query.where("id", "=", rowIdOf(filter.q))
  if (filter.q.startsWith("set_") || filter.q.startsWith("re_")) return query.where("id", "=", filter.q)
  if (filter.q.startsWith("pay_")) return query.where("payment_id", "=", filter.q)
  return query.where("resource_id", "=", filter.q)
}

/** Payments that wait for the merchant, and granted ones whose surplus does. */
const isWaiting = sql<boolean>`(transactions.status = 'open' or (transactions.status = 'granted'
  and exists (select from surpluses s where s.payment_id = transactions.id and s.state = 'open')))`

/** Transactions in the API's form. */
export async function transactionsOf(ctx: TxContext, rows: readonly Row<"transactions">[]) {
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => ({
    // What has an id of its own has a prefix; a payout's is made of its UUID.
    id: row.id.includes("_") ? row.id : payoutIdOf(row.id),
    type: row.type,
    status: row.status,
    exception: row.exception,
    ...format(row),
    token: checksummed(row.token),
    chain: networkOf(ctx.chain, row.chain_id).name,
    txHash: row.tx_hash,
    payer: row.payer && checksummed(row.payer),
    recipient: row.recipient && checksummed(row.recipient),
    paywallId: ifKind("pw", row.resource_id ?? ""),
    sessionId: ifKind("cs", row.resource_id ?? ""),
    bundleId: ifKind("bdl", row.resource_id ?? ""),
    paymentId: row.payment_id,
    createdAt: row.created_at.toISOString(),
  }))
}

/** All transactions that match the filter as CSV, newest first; a token's symbol is letters and digits. */
export const transactionsCsv = (ctx: TxContext, merchantId: string, filter: Filter): AsyncGenerator<string> =>
  csv<Row<"transactions">, (typeof columns)[number]>(
    columns,
    rows => transactionsOf(ctx, rows),
    (last, limit) =>
      transactions(ctx, merchantId, filter)
        .$if(last !== undefined, query =>
          query.where(eb =>
            eb(eb.refTuple("created_at", "id"), "<", eb.tuple(last?.created_at ?? new Date(0), last?.id ?? "")),
          ),
        )
        .orderBy("created_at", "desc")
        .orderBy("id", "desc")
        .limit(limit)
        .execute(),
  )
