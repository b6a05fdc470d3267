/**
 * Reads a merchant's payouts as pages, as CSV, or one with its attempts. Also reads the payments that a payout
 * contains.
 */
import { type RawBuilder, sql } from "kysely"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import { networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { PayoutState, Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import type { ListSource } from "../../platform/http/send-lists.ts"
import { timeAt } from "../../platform/http/time.ts"
import {
  amountCell,
  byNetwork,
  type continued,
  ifSettlement,
  linesOf,
  payoutIdCell,
  timeCell,
  unitOf,
} from "../../platform/http/write-csv-lines.ts"
import { ifKind, payoutIdOf, rowIdOf } from "../../platform/ids.ts"
import { shownAmount } from "./describe-story.ts"
import { payoutFacts } from "./explain-story.ts"
import { textOf } from "./load-story.ts"
import { explainPayout } from "./payout-standing.ts"
import { payoutKinds } from "./schema.ts"

/** The filter of the list, as unparsed text. */
export interface PayoutFilter {
  kind?: (typeof payoutKinds)[number] | undefined
  state?: PayoutState | undefined
  chain?: string | undefined
  from?: string | undefined
  to?: string | undefined
}

/** The columns of the list. The id is read as text, because cursors contain it in that form. */
const columns = [
  "kind",
  "state",
  "held_reason",
  "amount",
  "token",
  "chain_id",
  "recipient",
  "payment_id",
  "escrow_id",
  "tx_hash",
  "block_number",
  "gas_cost",
  "created_at",
  "mined_at",
] as const satisfies (keyof Row<"payouts">)[]

type Listed = Pick<Row<"payouts">, (typeof columns)[number]> & { id: string; attempts: number }

/** The condition of a partial index. It must use the same words as the index. */
const isListed = sql<boolean>`kind = any (array['share', 'sweep', 'return', 'capture'])`
const idText = sql<string>`id::text`

function payoutsWhere(ctx: TxContext, merchantId: string, { kind, state, chain, from, to }: PayoutFilter) {
  return (
    ctx.db
      .selectFrom("payouts")
      .where("merchant_id", "=", merchantId)
      .where(isListed)
      .$if(kind !== undefined, query => query.where("kind", "=", sql.lit(kind ?? "sweep")))
      // The indexes for a single kind include the lane in their condition.
      .$if(kind !== undefined && kind !== "capture", query => query.where("lane", "=", sql.lit("payout")))
      .$if(state !== undefined, query => query.where("state", "=", sql.lit(state ?? "queued")))
      .$if(chain !== undefined, query => query.where("chain_id", "=", networkAsked(ctx.chain, chain).chainId))
      .$if(from !== undefined, query => query.where("created_at", ">=", timeAt("from", from ?? "")))
      .$if(to !== undefined, query => query.where("created_at", "<", timeAt("to", to ?? "")))
  )
}

/** SQL: how many attempts of a payout, or of the batch that contains it, are signed. */
const attempts = sql<number>`(select count(*)::int from transaction_attempts a
  where a.payout_id = coalesce(payouts.batch_id, payouts.id) and a.hash is not null)`

/** The merchant's matching payouts, newest first. */
export function payoutsOf(ctx: TxContext, merchantId: string, filter: PayoutFilter): ListSource<Listed> {
  const query = payoutsWhere(ctx, merchantId, filter)
  const after = (last: Listed) => sql<boolean>`(created_at, id::text) < (${last.created_at}, ${last.id})`
  return {
    key: { at: "created_at", id: "id", isNumber: false },
    all: sql`${query.select(sql<number>`1`.as("one"))}`,
    read: async (last, limit, offset) =>
      await query
        .select(columns)
        .select([idText.as("id"), attempts.as("attempts")])
        .$if(last !== undefined, query => query.where(after(last as Listed)))
        .orderBy("created_at", "desc")
        .orderBy(idText, "desc")
        .limit(limit)
        .offset(offset)
        .execute(),
  }
}

/** The payouts of any merchants by their row ids, limited to kinds that the list shows. */
export const payoutsById = async ({ db }: TxContext, ids: readonly string[]) =>
  await db
    .selectFrom("payouts")
    .select(columns)
    .select(["merchant_id", idText.as("id"), attempts.as("attempts")])
    .where("id", "in", ids)
    .where(isListed)
    .execute()

/** Payouts in the API's form. */
export async function shownPayouts(ctx: TxContext, rows: readonly Listed[]) {
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => ({
    id: payoutIdOf(row.id),
    kind: kindOf(row),
    state: row.state,
    heldReason: row.held_reason,
    ...shownAmount(format(row)),
    baseUnits: `${row.amount}`,
    token: checksummed(row.token),
    chain: networkOf(ctx.chain, row.chain_id).name,
    recipient: checksummed(row.recipient),
    paymentId: row.payment_id,
    sessionId: row.escrow_id,
    txHash: row.tx_hash,
    blockNumber: row.block_number === null ? null : `${row.block_number}`,
    gasWei: row.gas_cost === null ? null : `${row.gas_cost}`,
    attempts: row.attempts,
    createdAt: row.created_at.toISOString(),
    minedAt: row.mined_at?.toISOString() ?? null,
  }))
}

function kindOf({ kind }: Pick<Listed, "kind">): (typeof payoutKinds)[number] {
  const listed = payoutKinds.find(each => each === kind)
  if (!listed) throw new Error(`a ${kind} is not in the list of payouts`)
  return listed
}

/** One of the merchant's payouts by id, as in the list; throws `NOT_FOUND`. */
async function readOwn(ctx: TxContext, merchantId: string, id: string) {
  if (!/^po_[0-9a-f]{32}$/.test(id)) throw new ApiError("NOT_FOUND")
  const query = payoutsWhere(ctx, merchantId, {}).where("id", "=", rowIdOf(id))
  const row = await query.selectAll().select(attempts.as("attempts")).executeTakeFirst()
  if (!row) throw new ApiError("NOT_FOUND")
  return row
}

/** The most attempts that are shown of one payout, which may be sent many times. */
const MAX_ATTEMPTS = 200

/** One payout with its attempts and the explanation of its state; throws `NOT_FOUND`. */
export async function readPayout(ctx: TxContext, merchantId: string, id: string) {
  const row = await readOwn(ctx, merchantId, id)
  const format = await amountFormatter(ctx, [row])
  const [facts] = await payoutFacts(ctx, [row], each => textOf(format(each)))
  const [shown] = await shownPayouts(ctx, [row])
  if (!facts || !shown) throw new Error(`the payout ${id} is there and is not shown`)
  const { rows } = await sql<{ count: number }>`
    select count(distinct coalesce(payment_id, ''))::int as count from (${partsQuery(row.id)}) parts`.execute(ctx.db)
  const log = await ctx.db
    .selectFrom("transaction_attempts")
    .selectAll()
    .where("payout_id", "=", row.batch_id ?? row.id)
    .where("hash", "is not", null)
    .orderBy("id")
    .limit(MAX_ATTEMPTS)
    .execute()
  return {
    ...shown,
    status: explainPayout(facts),
    paymentCount: rows[0]?.count ?? 0,
    replaces: row.replaces === null ? null : payoutIdOf(row.replaces),
    log: log.map(each => ({
      n: each.n,
      txHash: `${each.hash}`,
      gas: `${each.gas}`,
      maxFeePerGas: `${each.max_fee}`,
      signedAt: (each.signed_at ?? each.created_at).toISOString(),
      sentAt: each.sent_at?.toISOString() ?? null,
      sends: each.sends,
      result: each.last_result,
    })),
  }
}

/** A part of a payout: what a sweep took of one transfer, or the whole of a share, return or capture. */
export interface PartRow {
  id: bigint
  amount: bigint
  token: Address
  chain_id: number
  payment_id: string | null
  status: Row<"payments">["status"] | null
  payer: Address | null
  resource_id: string | null
  tx_hash: Hash | null
  at: Date
}

/**
 * SQL: the parts of a payout. What a sweep took never changes. A reorg may change which payment a transfer counts
 * for, and a transfer that counts for no payment is still a part.
 */
const partsQuery = (rowId: string): RawBuilder<PartRow> => sql<PartRow>`
  select s.transfer_id as id, s.amount, t.token, t.chain_id, c.payment_id, p.status, t.from_address as payer,
    coalesce(p.resource_id, d.resource_id) as resource_id, t.tx_hash, t.block_time as at
  from sweep_parts s join transfers t on t.id = s.transfer_id join deposits d on d.id = t.deposit_id
    left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
  where s.payout_id = ${rowId}::uuid
  union all
  select 0, i.amount, i.token, i.chain_id, i.payment_id, p.status, p.payer, coalesce(p.resource_id, i.escrow_id), p.tx_hash,
    coalesce(p.created_at, i.created_at)
  from payouts i left join payments p on p.id = i.payment_id where i.id = ${rowId}::uuid and i.kind <> 'sweep'`

/** The parts of one of the merchant's payouts; throws `NOT_FOUND`. */
export async function partsOf(ctx: TxContext, merchantId: string, id: string): Promise<ListSource<PartRow>> {
  const payout = await readOwn(ctx, merchantId, id)
  const parts = partsQuery(payout.id)
  return {
    key: { id: "id", isNumber: true },
    all: parts,
    read: async (last, limit, offset) => {
      const after = last === undefined ? sql`true` : sql`id < ${last.id}`
      const page = sql<PartRow>`select id::bigint, amount::numeric(78,0), token, chain_id, payment_id, status, payer, resource_id, tx_hash, at
        from (${parts}) parts where ${after} order by id desc limit ${limit} offset ${offset}`
      return (await page.execute(ctx.db)).rows
    },
  }
}

/** Parts in the API's form. */
export async function shownParts(ctx: TxContext, rows: readonly PartRow[]) {
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => ({
    paymentId: row.payment_id,
    status: row.status,
    ...shownAmount(format(row)),
    baseUnits: `${row.amount}`,
    payer: row.payer && checksummed(row.payer),
    paywallId: ifKind("pw", row.resource_id ?? ""),
    sessionId: ifKind("cs", row.resource_id ?? ""),
    bundleId: ifKind("bdl", row.resource_id ?? ""),
    txHash: row.tx_hash,
    at: row.at.toISOString(),
  }))
}

/** All matching payouts as CSV, newest first. Amounts in tokens other than the settlement token are in base units. */
export function payoutsCsv(ctx: TxContext, merchantId: string, filter: PayoutFilter): AsyncGenerator<string | Buffer> {
  return linesOf(ctx, {
    cells: {
      id: payoutIdCell(sql`r.id`),
      kind: sql`r.kind`,
      state: sql`r.state`,
      heldReason: sql`r.held_reason`,
      amount: amountCell(sql`r.amount`),
      currency: ifSettlement(ctx, ({ token }) => token.symbol),
      baseUnits: sql`r.amount::text`,
      token: sql`r.token`,
      chain: byNetwork(ctx, ({ name }) => name),
      recipient: sql`r.recipient`,
      paymentId: sql`r.payment_id`,
      sessionId: sql`r.escrow_id`,
      txHash: sql`r.tx_hash`,
      blockNumber: sql`r.block_number::text`,
      gasWei: sql`r.gas_cost::text`,
      createdAt: timeCell(sql`r.created_at`),
      minedAt: timeCell(sql`r.mined_at`),
    },
    key: ["at", "id"],
    rows: (last, limit) => {
      const unit = ifSettlement(ctx, ({ token }) => unitOf(token.decimals), "payouts")
      const query = payoutsWhere(ctx, merchantId, filter)
        .select(columns)
        .select([idText.as("id"), "created_at as at", sql`${unit}::numeric`.as("unit")])
      return continuedByText(query, last, limit)
    },
  })
}

/** Like `continued`, but compares ids as text, as the index does. */
function continuedByText(
  query: Parameters<typeof continued>[0],
  last: Parameters<typeof continued>[2],
  limit: number,
): RawBuilder<unknown> {
  const after = last ? query.where(sql<boolean>`(created_at, id::text) < (${last.at}::timestamptz, ${last.id})`) : query
  return sql`(${after.orderBy(sql`created_at`, "desc").orderBy(idText, "desc").limit(limit)})`
}
