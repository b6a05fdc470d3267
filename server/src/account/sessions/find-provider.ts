/** The identity provider at which people sign in to the console: what it says of itself, kept for some minutes. */
// I/O: fetches the provider's description. The description is kept by the settings that name the provider.
import * as oidc from "openid-client"
import type { Settings } from "../../platform/config/settings.ts"
import { type TxContext, wallTime } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { boundedText } from "../../platform/net/bounded-body.ts"

const TIMEOUT_S = 5
const LEEWAY_S = 60
/** A provider may move its endpoints. The library renews its keys. */
const KEPT_MS = 5 * 60_000
const MAX_BYTES = 256 * 1024

const known = new WeakMap<Settings, { provider: Promise<oidc.Configuration>; sinceMs: number }>()

/**
 * The provider as this console's client sees it. Throws `IDENTITY_UNAVAILABLE` when it can't be asked, and `NOT_FOUND`
 * where people don't sign in at one.
 */
export async function findProvider(ctx: TxContext): Promise<oidc.Configuration> {
  const { settings } = ctx
  if (!settings.oidcClient) throw new ApiError("NOT_FOUND")
  const before = known.get(settings)
  if (before && performance.now() - before.sinceMs < KEPT_MS) return await before.provider
  const provider = discover(ctx, settings.oidcClient).catch(error => {
    // Nothing is kept of a failure: the next sign-in asks again.
    known.delete(settings)
    throw new ApiError("IDENTITY_UNAVAILABLE", undefined, undefined, error)
  })
  known.set(settings, { provider, sinceMs: performance.now() })
  return await provider
}

async function discover(
  ctx: TxContext,
  { id, secret }: NonNullable<Settings["oidcClient"]>,
): Promise<oidc.Configuration> {
  const { oidcIssuer } = ctx.settings
  // Live mode's settings allow https alone.
  const isPlain = oidcIssuer.startsWith("http:")
  const found = await oidc.discovery(new URL(oidcIssuer), id, undefined, oidc.None(), {
    timeout: TIMEOUT_S,
    [oidc.customFetch]: boundedFetch,
    execute: isPlain ? [oidc.allowInsecureRequests] : [],
  })
  const server = found.serverMetadata()
  // What a provider takes that does not say it (OpenID Connect Discovery 1.0, 3).
  const { token_endpoint_auth_methods_supported: methods = ["client_secret_basic"] } = server
  const withSecret = methods.includes("client_secret_basic") ? oidc.ClientSecretBasic : oidc.ClientSecretPost
  // The provider's times are compared with the service's time, not with this machine's.
  const skewS = Math.round((wallTime(ctx).getTime() - Date.now()) / 1_000)
  const metadata = { [oidc.clockSkew]: skewS, [oidc.clockTolerance]: LEEWAY_S }
  const provider = new oidc.Configuration(server, id, metadata, secret === undefined ? oidc.None() : withSecret(secret))
  provider.timeout = TIMEOUT_S
  provider[oidc.customFetch] = boundedFetch
  if (isPlain) oidc.allowInsecureRequests(provider)
  // The signature of ID tokens too, though they come from the provider itself.
  oidc.enableNonRepudiationChecks(provider)
  return provider
}

const boundedFetch: oidc.CustomFetch = async (url, options) => {
  const answer = await fetch(url, options as RequestInit)
  const { status, headers } = answer
  return new Response(await boundedText(answer, MAX_BYTES), { status, headers })
}
