/**
 * `/api/console/deposits`: the merchant's receiving addresses with their terms. With these terms, anyone can send the
 * money to its owner after the recovery time, without the service: `sluice recover` reads the CSV.
 */
import { sql } from "kysely"
import { Type } from "typebox"
import type { Payee } from "../../platform/chain/deposit-terms.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { AddressText, HashText, ListEnd, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import type { ListSource } from "../../platform/http/send-lists.ts"
import type { Server } from "../../platform/http/server.ts"
import { byNetwork, kindCell, linesOf, timeCell } from "../../platform/http/write-csv-lines.ts"
import { ifKind } from "../../platform/ids.ts"
import { payeesOfSets } from "./make-deposits.ts"

const tags = ["books"]

const Deposit = Type.Object({
  address: AddressText,
  chain: Type.String(),
  chainId: Type.Integer(),
  token: AddressText,
  factory: AddressText,
  salt: HashText,
  owner: AddressText,
  approver: AddressText,
  payeesHash: HashText,
  payees: Type.Array(Type.Object({ address: AddressText, percent: Type.Number() }), {
    description: "Who shares what arrives, in the order of `payeesHash`; empty without a split",
  }),
  openAfter: Type.Integer({
    description: "Unix time in seconds after which anyone may send the deposit's money to its owner",
  }),
  opensAt: Timestamp,
  paywallId: Nullable(Type.String()),
  sessionId: Nullable(Type.String()),
  createdAt: Timestamp,
})

export function depositRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/deposits",
    operationId: "listDeposits",
    summary: "The receiving addresses and their terms, newest first",
    tags,
    answer: Type.Object({ data: Type.Array(Deposit), ...ListEnd }),
    source: depositsOf,
    show: listedOf,
    csv: {
      operationId: "exportDeposits",
      summary:
        "All receiving addresses and their terms, as CSV: everything needed to recover their money without the service",
      lines: depositsCsv,
    },
  })
}

/** The list is ordered by id alone, because newer rows have higher ids. */
function depositsOf(ctx: TxContext, merchantId: string): ListSource<Row<"deposits">> {
  const query = ctx.db.selectFrom("deposits").where("merchant_id", "=", merchantId)
  return {
    key: { id: "id", isNumber: true },
    all: sql`${query.select("id")}`,
    read: async (last, limit, offset) =>
      await query
        .selectAll()
        .$if(last !== undefined, query => query.where("id", "<", last?.id ?? 0n))
        .orderBy("id", "desc")
        .limit(limit)
        .offset(offset)
        .execute(),
  }
}

async function listedOf(ctx: TxContext, rows: readonly Row<"deposits">[]) {
  const sets = await payeesOfSets(
    ctx,
    rows.flatMap(row => row.recipient_set_id ?? []),
  )
  return rows.map(row => shownOf(ctx, row, sets.get(row.recipient_set_id ?? -1n) ?? []))
}

function shownOf(ctx: TxContext, row: Row<"deposits">, payees: readonly Payee[]) {
  const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
  // The contract stores this time in 64 bits, but even a date in the far future is a safe integer.
  const openAfter = Number.parseInt(row.open_after_s.toString(), 10)
  return {
    address: checksummed(row.address),
    chain,
    chainId: row.chain_id,
    token: checksummed(token.address),
    factory: checksummed(row.factory),
    salt: row.salt,
    owner: checksummed(row.owner),
    approver: checksummed(row.approver),
    payeesHash: row.payees_hash,
    payees: payees.map(({ address, percentE4 }) => ({ address: checksummed(address), percent: percentE4 / 10_000 })),
    openAfter,
    opensAt: new Date(openAfter * 1_000).toISOString(),
    paywallId: ifKind("pw", row.resource_id),
    sessionId: ifKind("cs", row.resource_id),
    createdAt: row.created_at.toISOString(),
  }
}

/**
 * Yields all of a merchant's deposits as CSV, newest first and followed by those of put-away checkouts, with the fields
 * of {@link shownOf}.
 */
export async function* depositsCsv(ctx: TxContext, merchantId: string): AsyncGenerator<string | Buffer> {
  const percent = sql`trim_scale(p.percent_e4 / 10000.0)`
  const cells = {
    address: sql`r.address`,
    chain: byNetwork(ctx, ({ name }) => name),
    chainId: sql`r.chain_id::text`,
    token: byNetwork(ctx, ({ token }) => checksummed(token.address)),
    factory: sql`r.factory`,
    salt: sql`r.salt`,
    owner: sql`r.owner`,
    approver: sql`r.approver`,
    payeesHash: sql`r.payees_hash`,
    payees: sql`case when r.recipient_set_id is not null then (select string_agg(p.address || '=' || ${percent}, ' ' order by p.position)
      from recipients p where p.set_id = r.recipient_set_id) end`,
    openAfter: sql`r.open_after_s::text`,
    opensAt: timeCell(sql`to_timestamp(r.open_after_s)`),
    paywallId: kindCell("pw", sql`r.resource_id`),
    sessionId: kindCell("cs", sql`r.resource_id`),
    createdAt: timeCell(sql`r.created_at`),
  }
  type Rows = Parameters<typeof linesOf<keyof typeof cells, "id">>[1]["rows"]
  const present: Rows = (last, limit) => sql`(select * from deposits
    where merchant_id = ${merchantId} and ${last ? sql`id < ${last.id}` : sql`true`} order by id desc limit ${limit})`
  const away: Rows = (last, limit) => sql`(select p.id, p.id as resource_id, p.chain_id, p.open_after_s, p.created_at,
      '0x' || encode(p.address, 'hex') as address, '0x' || encode(p.salt, 'hex') as salt, d.factory, d.owner, d.approver,
      d.payees_hash, d.recipient_set_id
    from (select * from put_away where merchant_id = ${merchantId} and ${last ? sql`id < ${last.id}` : sql`true`}
      order by id desc limit ${limit}) p
      join put_away_terms t on t.id = p.terms_id, jsonb_populate_record(null::deposits, t.deposit) d)`
  yield* linesOf(ctx, { cells, key: ["id"], rows: present })
  const others = linesOf(ctx, { cells, key: ["id"], rows: away })
  // Skips the column names, because the file already has them.
  await others.next()
  yield* others
}
