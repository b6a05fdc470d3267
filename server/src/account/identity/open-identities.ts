/** Finds the owner of a credential: a bearer token's subject, or an API key's merchant. */
import { timingSafeEqual } from "node:crypto"
import type { IncomingHttpHeaders } from "node:http"
import { type Context, inTransaction } from "../../platform/context.ts"
import { gather } from "../../platform/db/gather.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import {
  bearerKeyNeeded,
  type Caller,
  type Credential,
  type Identities,
  keyAlone,
  keyNeeded,
  sessionNeeded,
  walletNeeded,
} from "../../platform/http/authenticate.ts"
import { chosenOf, firstMembership, membershipsOf } from "./find-member.ts"
import { apiKeyOf, keysByHash } from "./manage-api-keys.ts"
import { negativeCache } from "./negative-cache.ts"
import { type Lookup, sharedLookup } from "./shared-lookup.ts"
import type { TokenIssuer } from "./tokens.ts"
import { namesUs, signingKeysById, verifyConsoleToken, verifySubscriberToken } from "./use-signing-keys.ts"
import { openCredentialWatch } from "./watch-credentials.ts"

/** The browser sessions, as `sessions/` reads them. */
export interface SessionSource {
  /**
   * The hash of a request's session cookie; undefined without a cookie, empty if the cookie is malformed. Throws
   * `FOREIGN_REQUEST` if another site's page sent the request.
   */
  hashIn(headers: IncomingHttpHeaders): string | undefined
  /** The open sessions with these hashes, keyed by hash. */
  byHash(hashes: readonly string[]): Promise<Map<string, Row<"sessions">>>
  /** Records that a session was used. */
  noteSeen(session: Row<"sessions">): Promise<void>
  /** When each of these open sessions ends if it stays unused, keyed by id. */
  lasting(ids: readonly string[]): Promise<ReadonlyMap<string, Date>>
}

/** For a server without a console. */
const noSessions: SessionSource = {
  hashIn: () => undefined,
  byHash: async () => new Map(),
  noteSeen: async () => {},
  lasting: async () => new Map(),
}

const isStream = ({ accept }: IncomingHttpHeaders): boolean => accept?.trim().toLowerCase() === "text/event-stream"

/** A caller without a credential. */
const stranger: Caller = { subject: undefined, apiKey: undefined }

/**
 * Answers the server's questions about callers from the database and the token issuer. The first credential present
 * decides, in the order `Authorization`, `x-api-key`, session cookie. If this credential is invalid, no other is tried,
 * because the caller would be ambiguous. An invalid credential is refused even if the route needs none. Otherwise a
 * revoked key would seem to work. Credentials from an address over its limit share one query, so that a valid one is
 * not refused because of others from the same address.
 */
export function openIdentities(ctx: Context, tokens: TokenIssuer, sessions: SessionSource = noSessions): Identities {
  const absent = negativeCache()
  const byHash = lookups(hashes => sessions.byHash(hashes))
  const keys = lookups(names => keysByHash(ctx, names))
  const signingKeys = lookups(names => signingKeysById(ctx, names))
  const authenticate: Identities["authenticate"] = (credential, headers, isRefused) => {
    const isStranger = credential === undefined || (credential === "optional key" && headers["x-api-key"] === undefined)
    return isStranger ? stranger : identify(credential, headers, isRefused)
  }
  const bySession = async (hash: string, headers: IncomingHttpHeaders, isRefused: boolean) => {
    const session = hash === "" || absent.has(hash) ? undefined : await byHash(isRefused)(hash)
    if (!session || !timingSafeEqual(Buffer.from(session.hash, "hex"), Buffer.from(hash, "hex"))) {
      if (hash !== "") absent.add(hash)
      return { ...stranger, refusal: sessionNeeded() }
    }
    // A browser reconnects a stream automatically, which must not keep an unused session alive.
    if (!isStream(headers)) await sessions.noteSeen(session)
    return { ...stranger, subject: { iss: session.iss, sub: session.sub }, sessionId: session.id }
  }
  const identify = async (credential: Credential, headers: IncomingHttpHeaders, isRefused: boolean) => {
    try {
      const token = /^Bearer ([\w.~+/-]+=*)$/i.exec(headers.authorization ?? "")?.[1]
      if (credential === "wallet") {
        const wallet = token && (await verifySubscriberToken(ctx, absent, signingKeys(isRefused), token))
        return wallet ? { ...stranger, wallet } : { ...stranger, refusal: walletNeeded() }
      }
      if (credential === "bearer key") {
        const apiKey = await apiKeyOf(ctx, absent, keys(isRefused), token ?? undefined)
        return apiKey ? { ...stranger, apiKey } : { ...stranger, refusal: bearerKeyNeeded() }
      }
      const isByKey = headers.authorization === undefined && headers["x-api-key"] !== undefined
      if (credential === "token" || credential === "token or key") {
        const hash = headers.authorization === undefined && !isByKey ? sessions.hashIn(headers) : undefined
        if (hash !== undefined) return await bySession(hash, headers, isRefused)
      }
      if (credential === "token" || (credential === "token or key" && !isByKey)) {
        const ours = async (token: string) => await verifyConsoleToken(ctx, absent, signingKeys(isRefused), token)
        const subject = token && (await (namesUs(ctx, token) ? ours(token) : tokens.verify(token, isRefused)))
        return subject ? { ...stranger, subject } : { ...stranger, refusal: new ApiError("UNAUTHORIZED") }
      }
      // Here a request with a bearer token counts as a request from a stranger, because a page may send its token with
      // every request.
      if (credential === "key" && headers.authorization !== undefined) return { ...stranger, refusal: keyAlone() }
      const apiKey = await apiKeyOf(ctx, absent, keys(isRefused), headers["x-api-key"])
      return apiKey ? { ...stranger, apiKey } : { ...stranger, refusal: keyNeeded() }
    } catch (error) {
      return { ...stranger, refusal: error }
    }
  }
  return {
    authenticate,
    watch: openCredentialWatch(ctx, ids => sessions.lasting(ids)),
    memberOf: async (subject, { sessionId, merchantId }) => {
      const memberships = await membershipsOf(ctx, subject)
      // A browser sends requests automatically, and these must not create a merchant.
      const isMade = memberships === undefined && merchantId === undefined && sessionId === undefined
      return isMade
        ? await inTransaction(ctx, ctx => firstMembership(ctx, subject))
        : chosenOf(memberships ?? [], merchantId)
    },
  }
}

/**
 * Looks up a credential immediately and shares the query with concurrent lookups. For an address over its limit, the
 * lookup waits for a batch.
 */
function lookups<R>(ask: (names: readonly string[]) => Promise<Map<string, R>>): (isRefused: boolean) => Lookup<R> {
  const together = sharedLookup(ask)
  const atOnce: Lookup<R> = gather(ask)
  return isRefused => (isRefused ? together : atOnce)
}
