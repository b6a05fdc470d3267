/**
 * Tokens that the service signs itself, and their keys (ES256). A key signs for about thirty days. Verifiers cache the
 * list, so a key is published from an hour before its first signature until its last token expires.
 */
import { randomUUID } from "node:crypto"
import {
  CompactSign,
  type CryptoKey,
  calculateJwkThumbprint,
  decodeJwt,
  errors,
  exportJWK,
  generateKeyPair,
  importJWK,
  type JWK,
  jwtVerify,
  SignJWT,
} from "jose"
import { sql } from "kysely"
import { type Context, inTransaction, type TxContext, wallTime } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { seal, unseal } from "../../platform/secrets.ts"
import type { NegativeCache } from "./negative-cache.ts"
import type { Lookup } from "./shared-lookup.ts"

const ALGORITHM = "ES256"
/** A SHA-256 thumbprint (RFC 7638). */
const KEY_ID = /^[\w-]{43}$/
const LEEWAY_S = 60
const ROTATED_MS = 30 * 86_400_000
const LEAD_MS = 3_600_000
/** How long a merchant stays signed in, in milliseconds. No other token of this service is valid for longer. */
export const CONSOLE_TOKEN_MS = 3_600_000
/**
 * Once a key's successor is this old, no token of the key is valid any more. The time is the sum of the successor's
 * lead, a token's life and a margin for clocks.
 */
const RETIRED_MS = LEAD_MS + CONSOLE_TOKEN_MS + 3_600_000

/** The header names a token's purpose, so one kind is never accepted as another (RFC 8725, 3.11). */
export const TOKEN_TYPES = {
  console: "console+jwt",
  paywallAccess: "paywall-access+jwt",
  subscriber: "subscriber+jwt",
} as const

/** The audience of subscribers' tokens. */
export const SUBSCRIBERS = "urn:sluice:subscriptions"

/** Signs a token; `expiresAt` is wall time, rounded down to whole seconds. */
export async function signToken(
  ctx: Context,
  { typ, aud, sub, expiresAt }: { typ: string; aud: string; sub: string; expiresAt: Date },
): Promise<string> {
  const { id, key } = await privateKey(ctx)
  return await new SignJWT()
    .setProtectedHeader({ alg: ALGORITHM, typ, kid: id })
    .setIssuer(ctx.settings.baseUrl)
    .setAudience(aud)
    .setSubject(sub)
    .setJti(randomUUID())
    .setIssuedAt(wallTime(ctx))
    .setExpirationTime(Math.floor(expiresAt.getTime() / 1_000))
    .sign(key)
}

/** The service's decentralized identifier (did:web): its host, with the port's colon escaped. */
export const didOf = ({ settings: { baseUrl } }: Pick<TxContext, "settings">): string =>
  `did:web:${encodeURIComponent(new URL(baseUrl).host)}`

/**
 * Signs a statement as a compact JWS with the key `<did>#<key id>`. The payload is canonical JSON (RFC 8785) if all
 * values are ASCII text or integers. The JWS has no type and no audience, so it never passes as a token. The JWS can be
 * verified for as long as its key is published.
 */
export async function signStatement(
  ctx: Context,
  did: string,
  statement: Record<string, string | number>,
): Promise<string> {
  const { id, key } = await privateKey(ctx)
  const canonical = JSON.stringify(Object.fromEntries(Object.entries(statement).sort(([a], [b]) => (a < b ? -1 : 1))))
  return await new CompactSign(new TextEncoder().encode(canonical))
    .setProtectedHeader({ alg: ALGORITHM, kid: `${did}#${id}` })
    .sign(key)
}

async function privateKey(ctx: Context): Promise<{ id: string; key: CryptoKey | Uint8Array }> {
  const { id, sealed } = await signingKey(ctx, wallTime(ctx))
  const jwk = JSON.parse(unseal(ctx.settings.secretKeys, "signing-key", id, sealed)) as JWK
  return { id, key: await importJWK(jwk, ALGORITHM) }
}

/** Whether the token names this service as its issuer. The signature is not verified yet. */
export function namesUs(ctx: Context, token: string): boolean {
  const { oidcIssuer, baseUrl } = ctx.settings
  // An installation without an identity provider names itself as the issuer.
  if (oidcIssuer.replace(/\/+$/, "") === baseUrl) return true
  try {
    return decodeJwt(token).iss === baseUrl
  } catch {
    return false
  }
}

/** The subject of a console token that this service signed; undefined if it is invalid or has another purpose. */
export async function verifyConsoleToken(
  ctx: Context,
  absent: NegativeCache,
  lookUp: Lookup<Row<"signing_keys">>,
  token: string,
): Promise<Subject | undefined> {
  const { oidcAudience: audience, baseUrl: iss } = ctx.settings
  const sub = await subjectOf(ctx, absent, lookUp, token, { typ: TOKEN_TYPES.console, audience })
  return sub ? { iss, sub } : undefined
}

/** The wallet (CAIP-10) of a subscriber's token; undefined if it is invalid or has another purpose. */
export async function verifySubscriberToken(
  ctx: Context,
  absent: NegativeCache,
  lookUp: Lookup<Row<"signing_keys">>,
  token: string,
): Promise<string | undefined> {
  return await subjectOf(ctx, absent, lookUp, token, { typ: TOKEN_TYPES.subscriber, audience: SUBSCRIBERS })
}

async function subjectOf(
  ctx: Context,
  absent: NegativeCache,
  lookUp: Lookup<Row<"signing_keys">>,
  token: string,
  purpose: { typ: string; audience: string },
): Promise<string | undefined> {
  try {
    const { payload } = await jwtVerify(token, ({ kid }) => publicKey(absent, lookUp, kid), {
      ...purpose,
      issuer: ctx.settings.baseUrl,
      algorithms: [ALGORITHM],
      clockTolerance: LEEWAY_S,
      currentDate: wallTime(ctx),
      requiredClaims: ["exp", "sub"],
    })
    return payload.sub
  } catch (error) {
    if (error instanceof errors.JOSEError) return undefined
    throw error
  }
}

/** All keys whose tokens may still be valid, as a JWK set; creates the first key. */
export async function publishedKeys(ctx: Context): Promise<JWK[]> {
  const keys = await ensuredKeys(ctx, wallTime(ctx))
  return keys.map(({ id, public_key }) => ({ ...public_key, kid: id, alg: ALGORITHM, use: "sig" }))
}

/** All keys that ever signed receipts, as a JWK set, because receipts must stay verifiable forever. */
export async function publishedReceiptKeys(ctx: TxContext) {
  const rows = await ctx.db.selectFrom("receipt_keys").select(["id", "public_key"]).orderBy("created_at").execute()
  return rows.map(({ id, public_key }) => ({ ...public_key, kid: id, alg: "EdDSA", use: "sig" }))
}

/** Deletes keys whose tokens have all expired. */
export async function forgetRetiredKeys(ctx: Context): Promise<void> {
  const newest = (await keysOf(ctx)).find(key => key.created_at.getTime() <= wallTime(ctx).getTime() - RETIRED_MS)
  if (newest) await ctx.db.deleteFrom("signing_keys").where("created_at", "<", newest.created_at).execute()
}

/** The token is not verified yet: `kid` may be any JSON value. */
async function publicKey(
  absent: NegativeCache,
  lookUp: Lookup<Row<"signing_keys">>,
  kid: unknown,
): Promise<CryptoKey | Uint8Array> {
  if (typeof kid !== "string" || !KEY_ID.test(kid) || absent.has(kid)) throw new errors.JWKSNoMatchingKey()
  const row = await lookUp(kid)
  if (row) return await importJWK(row.public_key as JWK, ALGORITHM)
  absent.add(kid)
  throw new errors.JWKSNoMatchingKey()
}

/** The signing keys with these ids, keyed by id. */
export async function signingKeysById(ctx: Context, ids: readonly string[]): Promise<Map<string, Row<"signing_keys">>> {
  const rows = await ctx.db.selectFrom("signing_keys").selectAll().where("id", "in", ids).execute()
  return new Map(rows.map(row => [row.id, row]))
}

/** The newest key that has been published for long enough, or the oldest key if none has. */
async function signingKey(ctx: Context, now: Date): Promise<Row<"signing_keys">> {
  const keys = await ensuredKeys(ctx, now)
  const key = keys.find(each => each.created_at.getTime() <= now.getTime() - LEAD_MS) ?? keys.at(-1)
  if (!key) throw new Error("there is no signing key")
  return key
}

/** The keys, newest first. Adds a key if the newest was created at least thirty days ago. */
async function ensuredKeys(ctx: Context, now: Date): Promise<Row<"signing_keys">[]> {
  const isDue = ([newest]: Row<"signing_keys">[]) =>
    newest === undefined || newest.created_at.getTime() <= now.getTime() - ROTATED_MS
  const keys = await keysOf(ctx)
  if (!isDue(keys)) return keys
  return await inTransaction(ctx, async ctx => {
    // Only one process creates the key; this lock does not block readers.
    await sql`lock table signing_keys in exclusive mode`.execute(ctx.db)
    const keys = await keysOf(ctx)
    return isDue(keys) ? [await makeKey(ctx, now), ...keys] : keys
  })
}

const keysOf = (ctx: TxContext): Promise<Row<"signing_keys">[]> =>
  ctx.db.selectFrom("signing_keys").selectAll().orderBy("created_at", "desc").orderBy("id").execute()

async function makeKey(ctx: TxContext, now: Date): Promise<Row<"signing_keys">> {
  const pair = await generateKeyPair(ALGORITHM, { extractable: true })
  const publicJwk = await exportJWK(pair.publicKey)
  const id = await calculateJwkThumbprint(publicJwk)
  const sealed = seal(ctx.settings.secretKeys, "signing-key", id, JSON.stringify(await exportJWK(pair.privateKey)))
  return await ctx.db
    .insertInto("signing_keys")
    .values({ id, public_key: JSON.stringify(publicJwk), sealed, created_at: now })
    .returningAll()
    .executeTakeFirstOrThrow()
}
