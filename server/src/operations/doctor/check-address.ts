/** Checks that other services can be reached: whatever answers at BASE_URL, and the identity provider. */
// I/O: makes requests, including before the service starts, when there is no context.
import { tokenIssuer } from "../../account/identity/tokens.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { boundedText } from "../../platform/net/bounded-body.ts"
import { type Finding, fine } from "./finding.ts"

const TIMEOUT_MS = 5_000
/** The most bytes that are read of an answer to `/healthz`, because another program's page may be larger. */
const MAX_BYTES = 64 * 1024

const part = "address"

/** Checks that BASE_URL leads to a running Sluice. */
export async function checkBaseUrl({ baseUrl }: Settings, signal: AbortSignal): Promise<Finding> {
  const bad = (message: string, todo: string): Finding => ({ part, check: "base_url", level: "alarm", message, todo })
  try {
    const response = await fetch(`${baseUrl}/healthz`, {
      redirect: "manual",
      // The other side may be closing a connection that was kept alive, which would look like an outage.
      headers: { connection: "close" },
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    })
    const text = await boundedText(response, MAX_BYTES)
    if (response.ok && isHealth(text)) return fine(part, "base_url", "BASE_URL leads to a running Sluice")
    return bad(
      `BASE_URL answers with HTTP ${response.status}, but not as Sluice`,
      `${baseUrl}/healthz must reach this service: check the proxy and the path.`,
    )
  } catch (error) {
    return bad(
      `BASE_URL can't be reached: ${reasonOf(error)}`,
      `${baseUrl}/healthz must reach this service from here: start the service, and check the DNS name, the proxy and the certificate.`,
    )
  }
}

function isHealth(text: string): boolean {
  try {
    return (JSON.parse(text) as { status?: unknown } | null)?.status === "ok"
  } catch {
    return false
  }
}

/** The code of the error's cause, because a message may repeat an address. */
function reasonOf(error: unknown): string {
  if ((error as Error).name === "TimeoutError") return "no answer in five seconds"
  const { cause } = error as { cause?: { code?: unknown } }
  return typeof cause?.code === "string" ? cause.code : "no usable answer"
}

/**
 * Checks that the issuer of console tokens answers. If merchants sign in only with wallets, there is no issuer to
 * query.
 */
export async function checkIssuer({ oidcIssuer, oidcAudience, baseUrl }: Settings): Promise<Finding[]> {
  if (oidcIssuer === "" || oidcIssuer === baseUrl)
    return [fine(part, "oidc_issuer", "merchants sign in with their wallets")]
  const issuer = tokenIssuer(oidcIssuer, oidcAudience)
  await issuer.check?.()
  const [trouble] = issuer.troubles?.() ?? []
  if (trouble === undefined) return [fine(part, "oidc_issuer", "the identity provider answers")]
  const todo = "Check OIDC_ISSUER, and that its /.well-known/openid-configuration can be reached from here."
  return [{ part, check: "oidc_issuer", level: "alarm", message: trouble, todo, isWatched: true }]
}
