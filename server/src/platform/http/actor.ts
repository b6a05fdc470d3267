/** The actor of a request, for the audit log: its credential, and the request's origin. */
import type { FastifyRequest } from "fastify"
import type { Actor } from "../actor.ts"
import { plainAddress } from "../limits/buckets.ts"
import type { Subject } from "./authenticate.ts"

const USER_AGENT_CHARACTERS = 200

/**
 * The actor of a request whose credential was verified, or of a `subject` that the request itself has proven; undefined
 * for a request without a credential. For a payer's wallet neither IP address nor browser is stored: the merchant, who
 * reads the log, must not see them.
 */
export function actorOf(request: FastifyRequest, subject: Subject | undefined = request.subject): Actor | undefined {
  const { apiKey, wallet } = request
  if (!(subject ?? apiKey ?? wallet)) return undefined
  const { method, routeOptions, ip, headers, id: requestId } = request
  const route = `${method} ${routeOptions.url}`
  if (wallet !== undefined) return { kind: "subscriber", id: wallet, route, requestId }
  // A User-Agent is text that the caller chooses, so it is cut, and characters that are not ASCII are replaced.
  const userAgent = headers["user-agent"]?.slice(0, USER_AGENT_CHARACTERS).replaceAll(/[^\x20-\x7e]/g, "?")
  const from = { address: plainAddress(ip), userAgent, route, requestId, ...credentialOf(request) }
  if (subject) return { kind: "console", id: subject.sub, issuer: subject.iss, ...from }
  return apiKey && { kind: "api_key", id: apiKey.id, ...from }
}

/** The credential that each transaction of the request checks again. A token is valid until it expires. */
function credentialOf({ apiKey, sessionId }: FastifyRequest): Pick<Actor, "credential"> {
  if (apiKey?.hash !== undefined) return { credential: { key: { id: apiKey.id, hash: apiKey.hash } } }
  return sessionId === undefined ? {} : { credential: { sessionId } }
}
