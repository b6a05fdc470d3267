/**
 * Bearer tokens of the OIDC issuer. Discovery finds the keys, which are cached and fetched again when a token names an
 * unknown key.
 */
// I/O: fetches the issuer's keys. The issuer is opened once, at the start, and holds the keys.
import { setTimeout as sleep } from "node:timers/promises"
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
  type RemoteJWKSet,
} from "jose"
import type { Logger } from "pino"
import { ApiError } from "../../platform/errors.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { isStorable } from "../../platform/http/json.ts"
import { boundedText } from "../../platform/net/bounded-body.ts"

export interface TokenIssuer {
  /**
   * Returns the token's subject, or undefined for an invalid token. Throws `IDENTITY_UNAVAILABLE` if the keys can't be
   * fetched. If `isRefused` says that the caller is over its limit, nothing is fetched while the issuer does not
   * answer.
   */
  verify(token: string, isRefused?: boolean): Promise<Subject | undefined>
  /** Asks the issuer for its keys once and updates `troubles`. Never rejects. */
  check?(): Promise<void>
  /** Problems of the issuer, in sentences for a person; empty while the issuer answers. */
  troubles?(): string[]
}

/** Only public-key algorithms: HS256 would accept the issuer's public key as the secret. */
const ALGORITHMS = ["RS256", "ES256", "EdDSA"]
const LEEWAY_S = 60
const DISCOVERY_TIMEOUT_MS = 5_000
/** How long a failure is cached, so that strangers can't trigger a request to the issuer with every token they send. */
const FAILED_MS = 2_000
/** The maximum size of the discovery document and of the keys; those of large providers are about 10 KB. */
const MAX_BYTES = 256 * 1024
/** The longest subject that an issuer may use (OpenID Connect Core 1.0, 2). */
const SUBJECT_CHARACTERS = 255
/**
 * Types of access tokens. RFC 9068 uses `at+jwt`, and most providers use `JWT` or no type. Other types, such as
 * `logout+jwt`, have other purposes and are refused (RFC 8725, 3.11).
 */
const ACCESS_TOKEN_TYPE = /^(application\/)?(at\+)?jwt$/i

/**
 * Verifies tokens of one issuer for one audience. Like the service's own tokens, these tokens are checked at time
 * `now`. Fetches nothing until a token might be valid.
 */
export function tokenIssuer(issuer: string, audience: string, now: () => Date = () => new Date()): TokenIssuer {
  const keys = issuerKeys(issuer)
  const rules = { issuer, audience, algorithms: ALGORITHMS, clockTolerance: LEEWAY_S, requiredClaims: ["exp", "sub"] }
  let trouble: string | undefined
  return {
    check: async () => {
      trouble = await keys.renew().then(
        () => undefined,
        (error: Error) => {
          const why = error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
          return `the identity provider ${issuer} can't be used, so requests with its tokens get 503: ${why}`
        },
      )
    },
    troubles: () => (trouble === undefined ? [] : [trouble]),
    verify: async (token, isRefused = false) => {
      const currentDate = now()
      if (!mayBeValid(token, { issuer, audience, currentDate })) return undefined
      const { failure, known } = keys.standing(isRefused)
      try {
        if (failure !== undefined && !known) throw failure
        const { payload, protectedHeader } = await jwtVerify(token, known ?? (await keys.now()), {
          ...rules,
          currentDate,
        })
        if (!known) keys.answered()
        const { sub, email, email_verified } = payload
        if (!ACCESS_TOKEN_TYPE.test(protectedHeader.typ ?? "JWT") || isForAnotherUse(payload)) return undefined
        if (typeof sub !== "string" || !isSubject(sub)) return undefined
        // An address that the issuer has not verified may have been typed by anyone.
        const isVerified = email_verified === true && typeof email === "string" && isStorable(email)
        return { iss: issuer, sub, ...(isVerified ? { email } : {}) }
      } catch (error) {
        // Generic JOSE errors and time-outs come from fetching the keys, all others from the token. While the issuer
        // fails, an unknown key may be a new one.
        const aboutKeys =
          (known !== undefined && error instanceof errors.JWKSNoMatchingKey) ||
          error instanceof errors.JWKSTimeout ||
          error instanceof errors.JWKSInvalid ||
          (error as { code?: unknown }).code === "ERR_JOSE_GENERIC"
        if (error instanceof errors.JOSEError && !aboutKeys) return undefined
        if (!known && failure === undefined) keys.failed(error)
        throw new ApiError("IDENTITY_UNAVAILABLE", undefined, undefined, error)
      }
    },
  }
}

/**
 * Whether a token claims our issuer, our audience and a supported algorithm, and has not expired. The claims are
 * unverified. This check only keeps hopeless tokens from causing requests to the issuer.
 */
function mayBeValid(
  token: string,
  { issuer, audience, currentDate }: { issuer: string; audience: string; currentDate: Date },
): boolean {
  try {
    const { alg } = decodeProtectedHeader(token)
    const { iss, aud, exp } = decodeJwt(token)
    const isCurrent = typeof exp === "number" && exp > currentDate.getTime() / 1_000 - LEEWAY_S
    return ALGORITHMS.includes(alg ?? "") && iss === issuer && [aud].flat().includes(audience) && isCurrent
  } catch {
    return false
  }
}

/** The keys of an issuer. Each `renew` discovers their address again, because an issuer may move its keys. */
function issuerKeys(issuer: string) {
  let current: { url: string; keys: RemoteJWKSet } | undefined
  let asked: Promise<RemoteJWKSet> | undefined
  let failure: { error: unknown; atMs: number } | undefined
  /** Whether the issuer answered last time. */
  let isAnswering = false
  const failed = (error: unknown) => {
    failure = { error, atMs: performance.now() }
    isAnswering = false
  }
  const answered = () => {
    failure = undefined
    isAnswering = true
  }
  const discovered = async () => {
    const url = await discover(issuer)
    if (current?.url !== url) current = { url, keys: remoteKeys(url) }
    return current.keys
  }
  const ask = () => {
    asked ??= discovered().finally(() => {
      asked = undefined
    })
    return asked
  }
  return {
    failed,
    answered,
    /**
     * The failure that forbids fetching now, with the known keys if they are fresh. A failure holds for two seconds or,
     * with `isRefused`, until the issuer answers.
     */
    standing: (isRefused: boolean): { failure?: unknown; known?: JWTVerifyGetKey } => {
      const isRecent = failure !== undefined && performance.now() - failure.atMs < FAILED_MS
      if (!isRecent && (!isRefused || isAnswering)) return {}
      const jwks = current?.keys.fresh ? current.keys.jwks() : undefined
      const known = jwks && createLocalJWKSet(jwks)
      return { failure: failure?.error ?? new Error("the issuer was not asked yet"), ...(known ? { known } : {}) }
    },
    /** The current keys, fetched if needed. */
    now: async (): Promise<RemoteJWKSet> => current?.keys ?? (await ask()),
    /**
     * Discovers and fetches the keys again, even if they are fresh. Rejects if the issuer has no keys; the known keys
     * are then kept. Known keys are also kept if their URL did not change, because a token with an unknown key causes a
     * fetch.
     */
    renew: async (): Promise<void> => {
      try {
        const url = await discover(issuer)
        const keys = remoteKeys(url)
        await keys.reload()
        if (!keys.jwks()?.keys.length) throw new Error(`the keys of ${issuer}: the list is empty`)
        if (current?.url !== url) current = { url, keys }
        answered()
      } catch (error) {
        failed(error)
        throw error
      }
    },
  }
}

/** The pause between two requests to an issuer that answers, and to one that fails. */
const WATCH_MS = { answers: 60_000, fails: 10_000 }

/**
 * Asks the issuer periodically until the signal aborts, and logs each change. Otherwise a wrong OIDC_ISSUER would go
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
 * Whether the claims of a token with an unspecific type show that it is not an access token. An ID token has hashes of
 * other tokens, or a claim by which Keycloak and Cognito mark such tokens. The token may also be a Keycloak refresh
 * token, or a security event such as a logout.
 */
const isForAnotherUse = ({ at_hash, c_hash, events, token_use, typ }: JWTPayload): boolean =>
  at_hash !== undefined ||
  c_hash !== undefined ||
  events !== undefined ||
  token_use === "id" ||
  (typeof typ === "string" && /^(id|refresh|offline|logout)$/i.test(typ))

/** Returns where an issuer publishes its keys. */
async function discover(issuer: string): Promise<string> {
  // "Any terminating / MUST be removed before appending" (OpenID Connect Discovery 1.0, 4.1); some issuers end in a
  // slash.
  const response = await fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, {
    signal: AbortSignal.timeout(DISCOVERY_TIMEOUT_MS),
  })
  if (!response.ok) throw new Error(`discovery of ${issuer}: HTTP ${response.status}`)
  const document = JSON.parse(await boundedText(response, MAX_BYTES)) as { issuer?: unknown; jwks_uri?: unknown }
  if (document.issuer !== issuer || typeof document.jwks_uri !== "string")
    throw new Error(`discovery of ${issuer}: the document names another issuer or has no keys`)
  return document.jwks_uri
}

const remoteKeys = (url: string): RemoteJWKSet =>
  createRemoteJWKSet(new URL(url), {
    timeoutDuration: DISCOVERY_TIMEOUT_MS,
    [customFetch]: async (url, options) => {
      const answer = await fetch(url, options)
      return new Response(await boundedText(answer, MAX_BYTES), { status: answer.status })
    },
  })
