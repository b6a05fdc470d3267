/** Reads receipts: a merchant's list, and the files that the holders of receipts keep. */
import { sql } from "kysely"
import {
  type DepositTerms,
  type ErasedReceipt,
  type HeadBody,
  type HeadLine,
  open,
  readReceipt,
  type SavedReceipt,
} from "../../../../verify/src/format.ts"
import { didOf } from "../../account/identity/use-signing-keys.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import type { ListSource } from "../../platform/http/send-lists.ts"
import { timeAt } from "../../platform/http/time.ts"
import { unseal } from "../../platform/secrets.ts"
import { ownerOf } from "./make-batches.ts"
import { type Kept, signText } from "./receipt.ts"
import { readBatch } from "./store-batches.ts"
import { openKey } from "./use-receipt-keys.ts"

/** The list's filter, with its values as received. */
export interface ReceiptFilter {
  type?: Row<"receipts">["type"] | undefined
  from?: string | undefined
  to?: string | undefined
}

/** A signed receipt as the list shows it. */
export type Listed = Pick<
  Row<"receipts">,
  | "type"
  | "chain_id"
  | "resource_id"
  | "about"
  | "token"
  | "amount"
  | "settled_at"
  | "seq"
  | "root"
  | "byte_offset"
  | "byte_length"
> & { n: string; is_erased: boolean; anchor_hash: Hash | null }

const columns = [
  "type",
  "chain_id",
  "resource_id",
  "about",
  "token",
  "amount",
  "settled_at",
  "seq",
  "root",
  "byte_offset",
  "byte_length",
] as const satisfies (keyof Row<"receipts">)[]

/** Returns the merchant's receipts that match, newest first. Receipts that wait for their batch are included. */
export function receiptsOf(ctx: TxContext, merchantId: string, { type, from, to }: ReceiptFilter): ListSource<Listed> {
  const query = ctx.db
    .selectFrom("receipts")
    .where("merchant_id", "=", merchantId)
    .$if(type !== undefined, query => query.where("type", "=", type ?? "payment"))
    .$if(from !== undefined, query => query.where("settled_at", ">=", timeAt("from", from ?? "")))
    .$if(to !== undefined, query => query.where("settled_at", "<", timeAt("to", to ?? "")))
  return {
    key: { id: "n", isNumber: true },
    all: sql`${query.select(sql<number>`1`.as("one"))}`,
    read: async (last, limit, offset) =>
      await query
        .select(columns)
        .select([
          sql<string>`n::text`.as("n"),
          sql<boolean>`root is not null and sealed is null`.as("is_erased"),
          sql<Hash | null>`(select i.tx_hash from receipt_batches b join payouts i on i.id = b.anchor_id where b.root = receipts.root)`.as(
            "anchor_hash",
          ),
        ])
        .$if(last !== undefined, query => query.where(sql<boolean>`n < ${last?.n}`))
        .orderBy("receipts.n", "desc")
        .limit(limit)
        .offset(offset)
        .execute(),
  }
}

/** What a file needs from a receipt's row, from its batch, and from what was written to the chain. */
type Stored = Pick<Row<"receipts">, "chain_id" | "seq" | "hash" | "type" | "sealed"> & {
  root: Hash
  byte_offset: number
  byte_length: number
  path: Uint8Array
  size: number
  key_block: bigint | null
  anchor_block: bigint | null
}

/** A line of a merchant's file. */
type SavedLine = SavedReceipt | ErasedReceipt

/** A receipt as a file that its holder can keep, with what the receipt's page says about it. */
export interface Saved {
  seq: number
  type: Row<"receipts">["type"]
  file: SavedLine
}

const storedWhere = (which: ReturnType<typeof sql>) => sql<Stored>`
  select r.chain_id, r.seq, r.hash, r.type, r.sealed, r.root, r.byte_offset, r.byte_length, r.path, b.size,
    (select i.block_number from receipt_keys k join payouts i on i.id = k.anchor_id where k.id = b.key_id) as key_block,
    (select i.block_number from payouts i where i.id = b.anchor_id) as anchor_block
  from receipts r join receipt_batches b on b.root = r.root where ${which}`

/** Returns the signed receipts about a payment, or about the calls of an escrow, in their order. */
export async function savedAbout(ctx: TxContext, abouts: readonly string[]): Promise<Saved[]> {
  const which = sql`r.about = any(${sqlArray("text", abouts)}) order by r.n limit 100`
  return await save(ctx, (await storedWhere(which).execute(ctx.db)).rows)
}

async function save(ctx: TxContext, rows: readonly Stored[]): Promise<Saved[]> {
  const read = await Promise.all(rows.map(row => openStored(ctx, row)))
  const terms = await termsAt(
    ctx,
    read.flatMap(({ addresses }) => addresses),
  )
  return read.map(({ row, jwe, kept, addresses }) => {
    const path = Buffer.from(row.path).toString("hex").match(/.{64}/g) ?? []
    const place = {
      sluiceReceipt: 1,
      jwe,
      root: row.root,
      offset: row.byte_offset,
      size: row.size,
      path: path.map(hash => `0x${hash}`),
      keyBlock: row.key_block === null ? null : Number(row.key_block),
      anchorBlock: row.anchor_block === null ? null : Number(row.anchor_block),
    } as const
    const seq = row.seq ?? 0
    const file: SavedLine = kept
      ? { ...place, ...kept, terms: addresses.flatMap(({ chainId, to }) => terms.get(`${chainId} ${to}`) ?? []) }
      : { ...place, erased: true, seq, hash: row.hash ?? "" }
    return { seq, type: row.type, file }
  })
}

interface Opened {
  row: Stored
  jwe: string
  /** Undefined if the receipt was erased. */
  kept: Kept | undefined
  addresses: { chainId: number; to: string }[]
}

async function openStored(ctx: TxContext, row: Stored): Promise<Opened> {
  const bytes = await readBatch(ctx, row.root, { offset: row.byte_offset, length: row.byte_length })
  if (!bytes) throw new ApiError("RECEIPT_NOT_HERE")
  const jwe = Buffer.from(bytes).toString()
  if (row.sealed === null) return { row, jwe, kept: undefined, addresses: [] }
  const owner = ownerOf(row.root, row.byte_offset)
  const kept = JSON.parse(unseal(ctx.settings.secretKeys, "receipt", owner, row.sealed)) as Kept
  const { body } = await readReceipt(await open(jwe, kept.key))
  const to = body.transfers.flatMap(each => (each.terms ? [each.to] : []))
  return { row, jwe, kept, addresses: [...new Set(to)].map(to => ({ chainId: row.chain_id, to })) }
}

/** Returns the terms of these addresses, keyed by `<chain> <address>`. */
async function termsAt(
  ctx: TxContext,
  addresses: readonly { chainId: number; to: string }[],
): Promise<Map<string, DepositTerms>> {
  if (addresses.length === 0) return new Map()
  const { rows } = await sql<{ chain_id: number } & DepositTerms>`
    select chain_id, address, factory, salt, owner, approver, payees_hash as "payeesHash", open_after_s::text as "openAfter"
    from deposits where (chain_id, address) in (${sql.join(addresses.map(({ chainId, to }) => sql`(${chainId}::int, ${to}::text)`))})`.execute(
    ctx.db,
  )
  return new Map(rows.map(({ chain_id, ...terms }) => [`${chain_id} ${terms.address}`, terms]))
}

const ROWS_PER_READ = 200

/**
 * Yields a merchant's file: all its receipts of a period in their order, one on each line, and a last line that says
 * how far the receipts go. The period is widened to a whole part of the chain, so that a missing receipt is noticed.
 * With a type, the file has only receipts of that type.
 */
export async function* receiptLines(
  ctx: TxContext,
  merchantId: string,
  { type, from, to }: ReceiptFilter,
): AsyncGenerator<string> {
  const since = from === undefined ? sql`true` : sql`settled_at >= ${timeAt("from", from)}`
  const until = to === undefined ? sql`true` : sql`settled_at < ${timeAt("to", to)}`
  const { rows } = await sql<{ first: number | null; last: number | null }>`
    select min(seq) as first, max(seq) as last from receipts
    where merchant_id = ${merchantId} and seq is not null and ${since} and ${until}`.execute(ctx.db)
  const first = rows[0]?.first ?? 1
  const last = rows[0]?.last ?? 0
  const ofType = type === undefined ? sql`true` : sql`r.type = ${type}`
  for (let after = first - 1; after < last; ) {
    const which = sql`r.merchant_id = ${merchantId} and r.seq > ${after} and r.seq <= ${last} and ${ofType}
      order by r.seq limit ${ROWS_PER_READ}`
    const saved = await save(ctx, (await storedWhere(which).execute(ctx.db)).rows)
    if (saved.length > 0) yield saved.map(({ file }) => `${JSON.stringify(file)}\n`).join("")
    after = saved.length < ROWS_PER_READ ? last : (saved.at(-1)?.seq ?? last)
  }
  yield await headLine(ctx, merchantId, { first, last, whole: type === undefined })
}

/**
 * Returns the last line. The line is signed by the key of the last receipt that can be opened and whose key is not
 * revoked. If there is no such receipt, the key that replaced the last receipt's key signs, because another key may
 * belong to another network. Returns an empty string if there is no key yet.
 */
async function headLine(
  ctx: TxContext,
  merchant: string,
  part: Pick<HeadBody, "first" | "last" | "whole">,
): Promise<string> {
  const { rows } = await sql<Row<"receipt_keys"> & { key_block: bigint | null }>`
    with signed as (
      select k.id, k.chain_id, k.factory, max(r.seq) as seq from receipts r
      join receipt_batches b on b.root = r.root join receipt_keys k on k.id = b.key_id
      where r.merchant_id = ${merchant} and r.seq between ${part.first} and ${part.last} and r.sealed is not null group by k.id)
    select k.*, i.block_number as key_block from receipt_keys k
    left join payouts i on i.id = k.anchor_id and i.state = 'final'
    left join signed own on own.id = k.id
    left join (select chain_id, factory from signed order by seq desc limit 1) last
      on last.chain_id = k.chain_id and last.factory = k.factory
    where k.revoke_id is null and k.sealed is not null
    order by own.seq desc nulls last, last.chain_id is not null desc, i.id is not null desc, k.created_at desc limit 1`.execute(
    ctx.db,
  )
  const [row] = rows
  if (!row) return ""
  const body: HeadBody = { v: 1, type: "head", issuer: didOf(ctx), merchant, ...part, at: ctx.now().toISOString() }
  const keyBlock = row.key_block === null ? {} : { keyBlock: Number(row.key_block) }
  const line: HeadLine = { sluiceHead: 1, jws: signText(body, openKey(ctx, row)), ...keyBlock }
  return `${JSON.stringify(line)}\n`
}
