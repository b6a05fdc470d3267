/**
 * Bearer tokens of the OIDC issuer. The keys are found by discovery, cached, and fetched again when a token names a new
 * one.
 */
// I/O: fetches the issuer's keys. It is created once at the start and holds the keys.
import { setTimeout as sleep } from "node:timers/promises"
import { createRemoteJWKSet, customFetch, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from "jose"
import type { Logger } from "pino"
import { ApiError } from "../errors.ts"
import type { Subject } from "../http/authenticate.ts"
import { boundedText } from "../http/bounded-body.ts"
import { isStorable } from "../http/json.ts"

export interface TokenIssuer {
  /**
   * The subject of the token, or undefined when the token is not valid; throws `IDENTITY_UNAVAILABLE` when the keys
   * can't be fetched.
   */
  verify(token: string): Promise<Subject | undefined>
  /** Asks the issuer for its keys once and updates `troubles`. Never rejects. */
  check?(): Promise<void>
  /** Problems of the issuer, in sentences for a person; empty while it answers. */
  troubles?(): string[]
}

/** Only signatures with a public key: with HS256 the issuer's public key would be accepted as the secret. */
const ALGORITHMS = ["RS256", "ES256", "EdDSA"]
const LEEWAY_S = 60
const DISCOVERY_TIMEOUT_MS = 5_000
/** The limit for the document and for the keys; those of large providers have some 10 KB. */
const MOST_BYTES = 256 * 1024
/** The longest subject that an issuer may use (OpenID Connect Core 1.0, 2). */
const SUBJECT_CHARACTERS = 255
/**
 * Types of access tokens: RFC 9068 has `at+jwt`, most providers `JWT` or none. Other types have other purposes, such as
 * `logout+jwt`, and are refused (RFC 8725, 3.11).
 */
const ACCESS_TOKEN_TYPE = /^(application\/)?(at\+)?jwt$/i

/** Verifies tokens of one issuer for one audience. Fetches nothing before the first token. */
export function tokenIssuer(issuer: string, audience: string): TokenIssuer {
  let keys: Promise<JWTVerifyGetKey> | undefined
  const discovered = () => {
    keys ??= discover(issuer).catch(error => {
      keys = undefined
      throw error
    })
    return keys
  }
  let trouble: string | undefined
  return {
    check: async () => {
      trouble = await discover(issuer).then(
        () => undefined,
        (error: Error) => {
          const why = error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
          return `the identity provider ${issuer} can't be used, so requests with its tokens get 503: ${why}`
        },
      )
    },
    troubles: () => (trouble === undefined ? [] : [trouble]),
    verify: async token => {
      try {
        const { payload, protectedHeader } = await jwtVerify(token, await discovered(), {
          issuer,
          audience,
          algorithms: ALGORITHMS,
          clockTolerance: LEEWAY_S,
          requiredClaims: ["exp", "sub"],
        })
        const { sub } = payload
        if (!ACCESS_TOKEN_TYPE.test(protectedHeader.typ ?? "JWT") || isForAnotherUse(payload)) return undefined
        return typeof sub === "string" && isSubject(sub) ? { iss: issuer, sub } : undefined
      } catch (error) {
        // Generic JOSE errors and time-outs concern fetching the keys, all others the token.
        const aboutKeys =
          error instanceof errors.JWKSTimeout ||
          error instanceof errors.JWKSInvalid ||
          (error as { code?: unknown }).code === "ERR_JOSE_GENERIC"
        if (error instanceof errors.JOSEError && !aboutKeys) return undefined
        throw new ApiError("IDENTITY_UNAVAILABLE", undefined, undefined, error)
      }
    },
  }
}

/** The pause between two requests to an issuer that answers, and to one that does not. */
const WATCH_MS = { answers: 60_000, fails: 10_000 }

/**
 * Asks the issuer periodically until the signal aborts, and logs each change: otherwise a wrong OIDC_ISSUER would stay
 * unnoticed until a merchant signs in.
 */
export async function watchIssuer({ check, troubles }: TokenIssuer, log: Logger, signal: AbortSignal): Promise<void> {
  let before: string | undefined
  while (check && troubles && !signal.aborted) {
    await check()
    const [now] = troubles()
    if (now !== undefined && before === undefined) log.error(now)
    if (now === undefined && before !== undefined) log.info("the identity provider answers again")
    before = now
    await sleep(now === undefined ? WATCH_MS.answers : WATCH_MS.fails, undefined, { signal }).catch(() => {})
  }
}

const isSubject = (sub: string): boolean => sub !== "" && sub.length <= SUBJECT_CHARACTERS && isStorable(sub)

/**
 * Whether the claims of a token with an unspecific type show that it is no access token: an ID token (hashes of other
 * tokens, or the claim that Keycloak and Cognito use), a refresh token of Keycloak, or a security event such as a
 * logout.
 */
const isForAnotherUse = ({ at_hash, c_hash, events, token_use, typ }: JWTPayload): boolean =>
  at_hash !== undefined ||
  c_hash !== undefined ||
  events !== undefined ||
  token_use === "id" ||
  (typeof typ === "string" && /^(id|refresh|offline|logout)$/i.test(typ))

async function discover(issuer: string): Promise<JWTVerifyGetKey> {
  // "Any terminating / MUST be removed before appending" (OpenID Connect Discovery 1.0, 4.1); some issuers end in one.
  const response = await fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, {
    signal: AbortSignal.timeout(DISCOVERY_TIMEOUT_MS),
  })
  if (!response.ok) throw new Error(`discovery of ${issuer}: HTTP ${response.status}`)
  const document = JSON.parse(await boundedText(response, MOST_BYTES)) as { issuer?: unknown; jwks_uri?: unknown }
  if (document.issuer !== issuer || typeof document.jwks_uri !== "string")
    throw new Error(`discovery of ${issuer}: the document names another issuer or has no keys`)
  return createRemoteJWKSet(new URL(document.jwks_uri), {
    timeoutDuration: DISCOVERY_TIMEOUT_MS,
    [customFetch]: async (url, options) => {
      const answer = await fetch(url, options)
      return new Response(await boundedText(answer, MOST_BYTES), { status: answer.status })
    },
  })
}
