/** Finishes a sign-in when the browser returns from the identity provider with a code. */
import type { FastifyRequest } from "fastify"
import * as oidc from "openid-client"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { cookieIn } from "../../platform/http/cookies.ts"
import { isStorable } from "../../platform/http/json.ts"
import { noteSignIn } from "../identity/find-member.ts"
import { callbackUrl } from "./begin-sign-in.ts"
import { cookieNames } from "./console-place.ts"
import { findProvider } from "./find-provider.ts"
import { beginSession } from "./open-sessions.ts"
import { takeSignIn } from "./queries.ts"
import { hashOf } from "./session.ts"

/** The longest subject that an issuer may use (OpenID Connect Core 1.0, 2). */
const SUBJECT_CHARACTERS = 255

/**
 * Starts the session of the person whom the provider names, for this browser's sign-in. Returns the session's secret
 * and the path to continue at. Throws `UNAUTHORIZED` with a sentence for the person, or `IDENTITY_UNAVAILABLE`. Each
 * sign-in can be used once, whatever its result.
 */
export async function finishSignIn(
  ctx: Context,
  request: FastifyRequest,
): Promise<{ secret: string; returnTo: string }> {
  const secret = cookieIn(request.headers.cookie, cookieNames(ctx.settings).signIn)
  const { state } = request.query as { state?: unknown }
  const begun = secret && typeof state === "string" && (await takeSignIn(ctx, { hash: hashOf(secret), state }))
  if (!begun)
    throw refused("This sign-in was started in another browser, was already used, or took longer than ten minutes.")
  const subject = await askProvider(ctx, request, begun)
  const session = await inTransaction(ctx, async (ctx: TxContext) => {
    await noteSignIn(ctx, subject)
    return await beginSession(ctx, request, subject, "provider")
  })
  return { secret: session.secret, returnTo: begun.return_to }
}

/** Exchanges the answer's code for the ID token and returns its subject. */
async function askProvider(ctx: Context, request: FastifyRequest, begun: Row<"sign_ins">): Promise<Subject> {
  const provider = await findProvider(ctx)
  const answer = new URL(callbackUrl(ctx))
  answer.search = request.url.split("?").slice(1).join("?")
  const checks = {
    expectedState: begun.state,
    expectedNonce: begun.nonce,
    pkceCodeVerifier: begun.verifier,
    idTokenExpected: true,
  }
  const claims = await oidc.authorizationCodeGrant(provider, answer, checks).then(
    tokens => tokens.claims(),
    error => {
      throw failureOf(ctx, error)
    },
  )
  const { iss, sub, email, email_verified }: Record<string, unknown> = claims ?? {}
  const isKnown = iss === ctx.settings.oidcIssuer && typeof sub === "string" && isSubject(sub)
  if (!isKnown) throw refused("The identity provider did not say who you are in a form that this console accepts.")
  // An address that the provider has not verified may have been typed by anyone.
  const isVerified = email_verified === true && typeof email === "string" && isStorable(email)
  return { iss, sub, ...(isVerified ? { email } : {}) }
}

const isSubject = (sub: string): boolean => sub !== "" && sub.length <= SUBJECT_CHARACTERS && isStorable(sub)

/** Maps an error of the library: the provider refused, can't be reached, or sent a wrong answer. */
function failureOf(ctx: Context, error: Error): ApiError {
  if (error instanceof oidc.AuthorizationResponseError)
    return refused(
      error.error === "access_denied" ? "You did not finish signing in." : "The identity provider refused the sign-in.",
      error,
    )
  const status = error instanceof oidc.ResponseBodyError ? error.status : undefined
  const isAway = !(error instanceof oidc.ClientError || error instanceof oidc.ResponseBodyError)
  ctx.log.warn({ err: error, status }, "a sign-in to the console failed at the identity provider")
  if (isAway) return new ApiError("IDENTITY_UNAVAILABLE", undefined, undefined, error)
  return refused("The identity provider's answer could not be used.", error)
}

const refused = (words: string, cause?: unknown) =>
  new ApiError("UNAUTHORIZED", undefined, `${words} Sign in again.`, cause)
