/** API keys identify a merchant's server. Only their hashes are stored, and each request looks its key up. */
import { createHash, timingSafeEqual } from "node:crypto"
import { sql } from "kysely"
import type { Mode } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import type { ApiKey } from "../../platform/http/authenticate.ts"
import type { Scope } from "../../platform/http/rights.ts"
import { newId, randomText } from "../../platform/ids.ts"
import { KEYS_PER_MERCHANT } from "../../platform/limits/buckets.ts"
import type { NegativeCache } from "./negative-cache.ts"
import type { Lookup } from "./shared-lookup.ts"

const RANDOM_CHARACTERS = 40
const LAST_USED_STEP_MS = 60_000
const FORM = new RegExp(`^sk_(test|live)_[0-9A-Za-z]{${RANDOM_CHARACTERS}}$`)

/** A new key for this mode: `sk_live_` or `sk_test_`, and 238 random bits. */
export const newApiKey = (mode: Mode): string =>
  `sk_${mode === "live" ? "live" : "test"}_${randomText(RANDOM_CHARACTERS)}`

/** The stored hash of a key. A fast hash is enough: nobody can try 2²³⁸ keys. */
export const keptOf = (key: string): { hash: string; prefix: string; last4: string } => ({
  hash: createHash("sha256").update(key).digest("hex"),
  prefix: key.slice(0, -RANDOM_CHARACTERS),
  last4: key.slice(-4),
})

/**
 * Creates a key, and returns it for the only time. `hold` is called first in its transaction. Throws `INVALID_OPERATION`
 * beyond the twentieth.
 */
export async function createApiKey(
  ctx: Context,
  merchantId: string,
  { name, scopes }: { name: string; scopes: readonly Scope[] },
  hold: (ctx: TxContext) => Promise<void>,
): Promise<{ key: string; row: Row<"api_keys"> }> {
  const key = newApiKey(ctx.settings.mode)
  const row = await inTransaction(ctx, async ctx => {
    await hold(ctx)
    // Locked, so that two concurrent requests can't both create the last allowed key.
    await lockMerchant(ctx.db, merchantId)
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
    return await ctx.db
      .insertInto("api_keys")
      .values({
        id: newId("key"),
        merchant_id: merchantId,
        name,
        scopes: [...scopes],
        ...keptOf(key),
        created_at: ctx.now(),
      })
      .returningAll()
      .executeTakeFirstOrThrow()
  })
  return { key, row }
}

/**
 * Revokes a key, which every process refuses from its next request on; throws `NOT_FOUND` for a key of another
 * merchant.
 */
export async function revokeApiKey(ctx: Context, merchantId: string, id: string): Promise<void> {
  const gone = await inTransaction(ctx, ({ db }) =>
    db.deleteFrom("api_keys").where("id", "=", id).where("merchant_id", "=", merchantId).executeTakeFirst(),
  )
  if (gone.numDeletedRows === 0n) throw new ApiError("NOT_FOUND")
}

/**
 * The merchant that a key belongs to, or undefined for an unknown key; records at most once a minute that the key was
 * used. No valid key is cached, so that a revoked one stops working at once: the lookup is one row by a unique index.
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
  await noteUse(ctx, row)
  return { id: row.id, merchantId: row.merchant_id, scopes: row.scopes as Scope[] }
}

/** What a request needs to know of its key. */
type FoundKey = Pick<Row<"api_keys">, "id" | "merchant_id" | "scopes" | "hash" | "last_used_at">

/** The keys with these hashes, keyed by hash. */
export async function keysByHash(ctx: Context, hashes: readonly string[]): Promise<Map<string, FoundKey>> {
  const { rows } = await sql<FoundKey>`
    select /* named: keys_by_hash */ id, merchant_id, scopes, hash, last_used_at from api_keys
    where hash = any(${sqlArray("text", hashes)})`.execute(ctx.db)
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
    // Of many concurrent requests, one writes.
    .where(eb => eb.or([eb("last_used_at", "is", null), eb("last_used_at", "<=", before)]))
    .execute()
}
