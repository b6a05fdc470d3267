/** API keys identify a merchant's server. Only hashes of keys are stored, and every request looks up its key. */
import { createHash, timingSafeEqual } from "node:crypto"
import { sql } from "kysely"
import type { Mode } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import type { ApiKey } from "../../platform/http/authenticate.ts"
import type { Scope } from "../../platform/http/rights.ts"
import { newId, randomText } from "../../platform/ids.ts"
import { KEYS_PER_MERCHANT } from "../../platform/limits/buckets.ts"
import type { KeyTerms } from "./key-terms.ts"
import type { NegativeCache } from "./negative-cache.ts"
import type { Lookup } from "./shared-lookup.ts"

const RANDOM_CHARACTERS = 40
const LAST_USED_STEP_MS = 60_000
const FORM = new RegExp(`^sk_(test|live)_[0-9A-Za-z]{${RANDOM_CHARACTERS}}$`)

/** Makes a key for this mode: `sk_live_` or `sk_test_`, and 238 random bits. */
export const newApiKey = (mode: Mode): string =>
  `sk_${mode === "live" ? "live" : "test"}_${randomText(RANDOM_CHARACTERS)}`

/** The stored hash of a key. A fast hash is enough: nobody can try 2²³⁸ keys. */
export const keptOf = (key: string): { hash: string; prefix: string; last4: string } => ({
  hash: createHash("sha256").update(key).digest("hex"),
  prefix: key.slice(0, -RANDOM_CHARACTERS),
  last4: key.slice(-4),
})

/** A key's secret, which its merchant sees only once, and its row. */
export interface ShownKey {
  key: string
  row: Row<"api_keys">
}

/**
 * Creates a key. Needs a transaction that locked the merchant. Throws `INVALID_OPERATION` if the merchant already has
 * twenty keys.
 */
export async function createApiKey(
  ctx: TxContext,
  merchantId: string,
  {
    name,
    terms,
    madeBy,
    byDevice = false,
  }: { name: string; terms: KeyTerms; madeBy: string | undefined; byDevice?: boolean },
): Promise<ShownKey> {
  const key = newApiKey(ctx.settings.mode)
  const { total } = await ctx.db
    .selectFrom("api_keys")
    .select(sql<number>`count(*)::int`.as("total"))
    .where("merchant_id", "=", merchantId)
    .executeTakeFirstOrThrow()
  if (total >= KEYS_PER_MERCHANT)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      `You already have ${KEYS_PER_MERCHANT} API keys; revoke one first.`,
    )
  const row = await ctx.db
    .insertInto("api_keys")
    .values({
      id: newId("key"),
      merchant_id: merchantId,
      name,
      ...terms,
      scopes: [...terms.scopes],
      ...keptOf(key),
      made_by: madeBy ?? null,
      by_device: byDevice,
      created_at: ctx.now(),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  return { key, row }
}

/** Returns the merchant's key; throws `NOT_FOUND`. */
export const readApiKey = (ctx: TxContext, merchantId: string, id: string): Promise<Row<"api_keys">> =>
  ctx.db
    .selectFrom("api_keys")
    .selectAll()
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirstOrThrow(() => new ApiError("NOT_FOUND"))

/** Changes a key; throws `NOT_FOUND`. The change applies from the next request. */
export const changeApiKey = (
  ctx: TxContext,
  { id, merchant_id }: Pick<Row<"api_keys">, "id" | "merchant_id">,
  change: { name?: string; terms: KeyTerms; madeBy: string | undefined },
): Promise<Row<"api_keys">> =>
  ctx.db
    .updateTable("api_keys")
    .set({
      ...(change.name === undefined ? {} : { name: change.name }),
      ...change.terms,
      scopes: [...change.terms.scopes],
      // Whoever sets these terms may grant all of them, so the key no longer ends because of its former creator.
      ...(change.madeBy === undefined ? {} : { made_by: change.madeBy, beyond_until: null, beyond_by: null }),
    })
    .where("id", "=", id)
    .where("merchant_id", "=", merchant_id)
    .returningAll()
    .executeTakeFirstOrThrow(() => new ApiError("NOT_FOUND"))

/** Gives a key a new secret. The current secret stays valid for `graceS`; an older secret ends immediately. */
export async function rollApiKey(
  ctx: TxContext,
  { id, hash }: Pick<Row<"api_keys">, "id" | "hash">,
  graceS: number,
): Promise<ShownKey> {
  const key = newApiKey(ctx.settings.mode)
  const until = new Date(ctx.now().getTime() + graceS * 1_000)
  const previous = graceS > 0 ? { previous_hash: hash, previous_until: until } : NO_PREVIOUS
  const row = await ctx.db
    .updateTable("api_keys")
    .set({ ...keptOf(key), ...previous })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow()
  return { key, row }
}

const NO_PREVIOUS = { previous_hash: null, previous_until: null }

/** Revokes a key, so that every process refuses its next request. Throws `NOT_FOUND` for another merchant's key. */
export async function revokeApiKey(ctx: Context, merchantId: string, id: string): Promise<void> {
  const gone = await inTransaction(ctx, ({ db }) =>
    db.deleteFrom("api_keys").where("id", "=", id).where("merchant_id", "=", merchantId).executeTakeFirst(),
  )
  if (gone.numDeletedRows === 0n) throw new ApiError("NOT_FOUND")
}

/**
 * The merchant of a key, or undefined for an unknown key. Records the key's use at most once a minute. No valid key is
 * cached, so a revoked key stops working immediately. The lookup reads one row by a unique index.
 */
export async function apiKeyOf(
  ctx: Context,
  absent: NegativeCache,
  lookUp: Lookup<FoundKey>,
  key: unknown,
): Promise<ApiKey | undefined> {
  if (typeof key !== "string" || !FORM.test(key)) return undefined
  const { hash } = keptOf(key)
  if (absent.has(hash)) return undefined
  const row = await lookUp(hash)
  if (!row || !timingSafeEqual(Buffer.from(row.hash, "hex"), Buffer.from(hash, "hex"))) {
    absent.add(hash)
    return undefined
  }
  // An expired key is not cached as absent, because its merchant may extend it.
  if (!row.holds) throw new ApiError("UNAUTHORIZED", undefined, "This API key has expired.")
  await noteUse(ctx, row)
  const { id, merchant_id: merchantId, scopes, allowed_ips: allowedIps, limits } = row
  return { id, merchantId, scopes: scopes as Scope[], allowedIps, hash, limits }
}

/** What a request needs to know about its key. */
type FoundKey = Pick<Row<"api_keys">, "id" | "merchant_id" | "scopes" | "hash" | "last_used_at" | "allowed_ips"> & {
  /** Whether the key has not expired. */
  holds: boolean
  limits: Record<string, number> | null
}

/** SQL: whether a row `k` of `api_keys` is still valid. Every statement uses this one definition. */
export const keyHolds = (ctx: TxContext) =>
  sql<boolean>`(least(k.expires_at, k.beyond_until) is null or least(k.expires_at, k.beyond_until) > ${ctx.now()})`

/** The keys with these hashes, keyed by hash. A rolled key is found by both secrets while the older one is valid. */
export async function keysByHash(ctx: Context, hashes: readonly string[]): Promise<Map<string, FoundKey>> {
  const columns = sql`k.id, k.merchant_id, k.scopes, k.last_used_at, k.allowed_ips, ${keyHolds(ctx)} as holds,
    (select jsonb_object_agg(l.bucket, l.per_minute) from merchant_limits l where l.merchant_id = k.merchant_id) as limits`
  const named = sqlArray("text", hashes)
  const { rows } = await sql<FoundKey>`
    select /* named: keys_by_hash */ k.hash, ${columns} from api_keys k where k.hash = any(${named})
    union all
    select k.previous_hash, ${columns} from api_keys k
    where k.previous_hash = any(${named}) and k.previous_until > ${ctx.now()}`.execute(ctx.db)
  return new Map(rows.map(row => [row.hash, row]))
}

async function noteUse(ctx: Context, { id, last_used_at }: FoundKey): Promise<void> {
  const now = ctx.now()
  const before = new Date(now.getTime() - LAST_USED_STEP_MS)
  if (last_used_at && last_used_at > before) return
  await ctx.db
    .updateTable("api_keys")
    .set({ last_used_at: now })
    .where("id", "=", id)
    // Of many concurrent requests, only one writes the time.
    .where(eb => eb.or([eb("last_used_at", "is", null), eb("last_used_at", "<=", before)]))
    .execute()
}
