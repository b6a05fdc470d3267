/** The console's identity provider and its description, cached for a few minutes. */
// I/O: fetches the provider's description. The cache is keyed by the settings that name the provider.
import * as oidc from "openid-client"
import type { Settings } from "../../platform/config/settings.ts"
import { type TxContext, wallTime } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { boundedText } from "../../platform/net/bounded-body.ts"

const TIMEOUT_S = 5
const LEEWAY_S = 60
/**
 * How long the description is cached, because a provider may move its endpoints. The library itself renews the
 * provider's keys.
 */
const KEPT_MS = 5 * 60_000
const MAX_BYTES = 256 * 1024

const known = new WeakMap<Settings, { provider: Promise<oidc.Configuration>; sinceMs: number }>()

/**
 * The provider, with this console as its client. Throws `IDENTITY_UNAVAILABLE` if it can't be reached, and `NOT_FOUND`
 * if sign-in does not use a provider.
 */
export async function findProvider(ctx: TxContext): Promise<oidc.Configuration> {
  const { settings } = ctx
  if (!settings.oidcClient) throw new ApiError("NOT_FOUND")
  const before = known.get(settings)
  if (before && performance.now() - before.sinceMs < KEPT_MS) return await before.provider
  const provider = discover(ctx, settings.oidcClient).catch(error => {
    // A failure is not cached, so the next sign-in asks again.
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
  // In live mode, the settings allow only https.
  const isPlain = oidcIssuer.startsWith("http:")
  const found = await oidc.discovery(new URL(oidcIssuer), id, undefined, oidc.None(), {
    timeout: TIMEOUT_S,
    [oidc.customFetch]: boundedFetch,
    execute: isPlain ? [oidc.allowInsecureRequests] : [],
  })
  const server = found.serverMetadata()
  // The default for a provider that names no method (OpenID Connect Discovery 1.0, 3).
  const { token_endpoint_auth_methods_supported: methods = ["client_secret_basic"] } = server
  const withSecret = methods.includes("client_secret_basic") ? oidc.ClientSecretBasic : oidc.ClientSecretPost
  // Compares the provider's times with the service's time instead of this machine's.
  const skewS = Math.round((wallTime(ctx).getTime() - Date.now()) / 1_000)
  const metadata = { [oidc.clockSkew]: skewS, [oidc.clockTolerance]: LEEWAY_S }
  const provider = new oidc.Configuration(server, id, metadata, secret === undefined ? oidc.None() : withSecret(secret))
  provider.timeout = TIMEOUT_S
  provider[oidc.customFetch] = boundedFetch
  if (isPlain) oidc.allowInsecureRequests(provider)
  // Checks ID token signatures too, although the tokens come from the provider directly.
  oidc.enableNonRepudiationChecks(provider)
  return provider
}

const boundedFetch: oidc.CustomFetch = async (url, options) => {
  const answer = await fetch(url, options as RequestInit)
  const { status, headers } = answer
  return new Response(await boundedText(answer, MAX_BYTES), { status, headers })
}
