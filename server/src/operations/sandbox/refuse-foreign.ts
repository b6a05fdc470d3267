/**
 * Decides who may use the sandbox's own routes, which need no credential: the sandbox's pages, and programs of its
 * developer. Otherwise any page that the developer opens could move the clock, mint tokens and sign with the buyers'
 * keys.
 */
import type { IncomingHttpHeaders } from "node:http"
import type { FastifyRequest } from "fastify"
import type { Settings } from "../../platform/config/settings.ts"
import { ApiError } from "../../platform/errors.ts"
import { isLoopbackHost } from "../../platform/http/hosts.ts"

/**
 * Creates a hook that refuses, with `FORBIDDEN`, requests from pages of other origins and requests to names of other
 * machines. With `SANDBOX_PUBLIC`, the hosts of the sandbox's own addresses are allowed too.
 */
export function refuseForeign({ sandboxPublic, baseUrl, oidcIssuer }: Settings) {
  const ownHosts = sandboxPublic ? [baseUrl, oidcIssuer].map(url => new URL(url).host) : []
  return async ({ headers }: FastifyRequest): Promise<void> => {
    // The header as it was sent, because a page that has rebound its name can send `X-Forwarded-Host`.
    const { host = "" } = headers
    if (!isLoopbackHost(host) && !ownHosts.includes(host))
      throw forbidden("The sandbox's own routes answer only at a loopback address, such as 127.0.0.1 or localhost.")
    if (!isOwn(headers))
      throw forbidden(
        "The sandbox's own routes answer only programs and its own pages. Type the address to open a page.",
      )
  }
}

/**
 * Whether a request came from no page, from a page of this origin, or from a person who typed the address. Every
 * browser sends `Sec-Fetch-Site` to loopback addresses. Programs don't, although Node sends `Sec-Fetch-Mode`.
 */
function isOwn({ host, origin, "sec-fetch-site": site }: IncomingHttpHeaders): boolean {
  if (site !== undefined) return site === "same-origin" || site === "none"
  return origin === undefined || origin === `http://${host}`
}

const forbidden = (message: string) => new ApiError("FORBIDDEN", undefined, message)
