/** Starts a sign-in: stores a row, and returns a cookie and the identity provider's address. */
import * as oidc from "openid-client"
import { type Context, wallTime } from "../../platform/context.ts"
import { setCookie } from "../../platform/http/cookies.ts"
import { cookieNames, isSecure } from "./console-place.ts"
import { findProvider } from "./find-provider.ts"
import { newSecret } from "./open-sessions.ts"
import { hashOf, SIGN_IN_MS } from "./session.ts"

/** The address to which the provider sends a browser back. */
export const callbackUrl = ({ settings }: Pick<Context, "settings">): string =>
  `${settings.consoleUrl}/console/callback`

/**
 * Stores a sign-in that returns to a console path. Returns the provider's address and the `Set-Cookie` header for this
 * browser. Throws the errors of {@link findProvider}.
 */
export async function beginSignIn(ctx: Context, returnTo: string): Promise<{ url: string; cookie: string }> {
  const provider = await findProvider(ctx)
  const secret = newSecret()
  const state = oidc.randomState()
  const nonce = oidc.randomNonce()
  const verifier = oidc.randomPKCECodeVerifier()
  await ctx.db
    .insertInto("sign_ins")
    .values({
      hash: hashOf(secret),
      state,
      nonce,
      verifier,
      return_to: returnTo,
      expires_at: new Date(wallTime(ctx).getTime() + SIGN_IN_MS),
    })
    .execute()
  const url = oidc.buildAuthorizationUrl(provider, {
    redirect_uri: callbackUrl(ctx),
    scope: "openid email",
    state,
    nonce,
    code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
  })
  return { url: url.href, cookie: signInCookie(ctx, secret, SIGN_IN_MS / 1_000) }
}

/**
 * The cookie of a sign-in, removed if there is no secret. The cookie is `Lax`, because the browser must send it when
 * the provider, another site, sends the person back.
 */
export const signInCookie = ({ settings }: Pick<Context, "settings">, secret = "", maxAgeS = 0): string =>
  setCookie({
    name: cookieNames(settings).signIn,
    value: secret,
    isSecure: isSecure(settings),
    sameSite: "Lax",
    maxAgeS,
  })
