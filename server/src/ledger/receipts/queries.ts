/** Reads and writes receipts and their batches. SQL only. */
import { sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { StoredTerms, Waiting } from "./receipt.ts"

/**
 * A receipt names at most this many fields of metadata, or of answers, one by one. If there are more fields, all of
 * them become one fact.
 */
const FIELDS = 50

/** SQL: the fields of an object in `what`, which says what was sold, as facts. */
function fieldsOf(name: "metadata" | "answers", prefix: string) {
  const value = sql`(r.body #> ${`{what,${name}}`})`
  const object = sql`(case when jsonb_typeof(${value}) = 'object' then ${value} else '{}' end)`
  const many = sql`(select count(*) from jsonb_object_keys(${object})) > ${FIELDS}`
  return sql`select ${prefix}::text || '.' || key as name, value #>> '{}' as value, 1 as place from jsonb_each(${object}) where not ${many}
    union all select ${prefix}::text, ${object}::text, 1 where ${many}`
}

/** Returns at most `limit` of a network's waiting receipts after `after`, in the order in which they were written. */
export async function waitingReceipts(
  ctx: TxContext,
  { chainId, token }: { chainId: number; token: { address: Address; decimals: number } },
  after: bigint,
  limit: number,
): Promise<Waiting[]> {
  // Metadata is read as text, because its numbers may have more digits than JavaScript's numbers.
  const { rows } = await sql<Waiting>`
    select r.n, r.merchant_id, r.type, r.chain_id, r.resource_id, r.about, r.token, r.amount, r.settled_at,
      r.body - 'what' as body, r.body ? 'what' as had_what,
      case when r.token = ${token.address} then ${token.decimals}::int else coalesce(t.decimals, 0) end as decimals,
      (select coalesce(jsonb_agg(jsonb_build_array(f.name, f.value) order by f.place, f.name), '[]') from (
        select 'merchant' as name, r.body ->> 'merchant' as value, 0 as place
        union all select 'description', r.body #>> '{what,description}', 0
        union all ${fieldsOf("metadata", "metadata")}
        union all ${fieldsOf("answers", "answer")}) f where f.value is not null) as facts
    from receipts r left join tokens t on t.chain_id = r.chain_id and t.address = r.token
    where r.chain_id = ${chainId} and r.root is null and r.n > ${after} order by r.n limit ${limit}`.execute(ctx.db)
  return rows
}

/** Returns the last receipt in the chain of each of these merchants. */
export async function headsOf(
  ctx: TxContext,
  merchants: readonly string[],
): Promise<Map<string, { seq: number; hash: string }>> {
  const { rows } = await sql<{ merchant_id: string; seq: number; hash: string }>`
    select m.id as merchant_id, r.seq, r.hash from unnest(${sqlArray("text", merchants)}) m (id) cross join lateral (
      select seq, hash from receipts where merchant_id = m.id and seq is not null order by seq desc limit 1) r`.execute(
    ctx.db,
  )
  return new Map(rows.map(({ merchant_id, ...head }) => [merchant_id, head]))
}

/**
 * Returns the newest signed receipt about each of these payments or calls that is not a reversal. This is the receipt
 * that a reversal takes back.
 */
export async function standingHashes(ctx: TxContext, abouts: readonly string[]): Promise<Map<string, string>> {
  if (abouts.length === 0) return new Map()
  const { rows } = await sql<{ about: string; hash: string }>`
    select distinct on (about) about, hash from receipts
    where about = any(${sqlArray("text", abouts)}) and hash is not null and type <> 'reversed' order by about, n desc`.execute(
    ctx.db,
  )
  return new Map(rows.map(({ about, hash }) => [about, hash]))
}

/** Returns the terms of these deposits, by deposit id. */
export async function termsOfDeposits(ctx: TxContext, ids: readonly number[]): Promise<Map<number, StoredTerms>> {
  if (ids.length === 0) return new Map()
  const { rows } = await sql<{ id: bigint; open_after_s: bigint } & StoredTerms>`
    select id, address, factory, salt, owner, approver, payees_hash as "payeesHash", open_after_s from deposits
    where id = any(${sqlArray("bigint", ids.map(BigInt))})`.execute(ctx.db)
  return new Map(rows.map(({ id, open_after_s, ...terms }) => [Number(id), { ...terms, openAfter: open_after_s }]))
}

/** The columns of a receipt that are written when it gets its place in a batch. */
export interface Placed {
  merchant_id: string
  n: bigint
  seq: number
  hash: string
  byte_offset: number
  byte_length: number
  path: Uint8Array
  sealed: string
  /**
   * Whether the payment's description was still there when the receipt was signed. An erasure since then destroys the
   * receipt's key.
   */
  had_what: boolean
}

/** Writes where receipts are in their batch. Throws if another process has already placed any of them. */
export async function placeReceipts(ctx: TxContext, root: Hash, placed: readonly Placed[]): Promise<void> {
  const rows = placed.map(({ n, path, ...row }) => ({ ...row, n: `${n}`, path: Buffer.from(path).toString("hex") }))
  const { numAffectedRows } = await sql`update receipts r set seq = p.seq, hash = p.hash, root = ${root},
      byte_offset = p.byte_offset, byte_length = p.byte_length, path = decode(p.path, 'hex'), body = null,
      sealed = case when r.body ? 'what' or not p.had_what then p.sealed end
    from (${rowsParameter(rows, "merchant_id text, n bigint, seq integer, hash text, byte_offset integer, byte_length integer, path text, sealed text, had_what boolean")}) p
    where r.merchant_id = p.merchant_id and r.n = p.n and r.root is null`.execute(ctx.db)
  if (Number(numAffectedRows) !== placed.length) throw new Error("another process put these receipts into a batch")
}
