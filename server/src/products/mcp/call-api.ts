/**
 * Lets tools call the API's own routes with the caller's key, so that its scopes, caps, addresses, limits and the
 * audit log apply.
 */
// I/O: sends requests to this process's own routes.
import type { FastifyRequest } from "fastify"
import type { Server } from "../../platform/http/server.ts"
import { type CallApi, Refusal } from "./tool.ts"

/** The headers that tell the service where a request comes from. */
const PASSED = ["host", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
const BEARER = /^Bearer /i

/**
 * Makes requests without a connection of their own. They pass every hook as if the caller had sent them. Their user
 * agent in the audit log says whether a person agreed.
 */
export function openApiCalls(app: Server, request: FastifyRequest): CallApi {
  const { headers, socket, id } = request
  return async (method, path, { query = {}, body, idempotencyKey, isAgreed = false } = {}) => {
    const search = new URLSearchParams(
      Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, `${value}`]])),
    )
    const answer = await app.inject({
      method,
      url: search.size > 0 ? `${path}?${search}` : path,
      remoteAddress: socket.remoteAddress ?? "",
      headers: {
        ...Object.fromEntries(PASSED.flatMap(name => (headers[name] === undefined ? [] : [[name, headers[name]]]))),
        "x-api-key": `${headers.authorization}`.replace(BEARER, ""),
        "x-request-id": id,
        "user-agent": `MCP, ${isAgreed ? "a person agreed" : "no person was asked"}; ${headers["user-agent"] ?? ""}`,
        ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
    })
    const parsed = answer.json()
    if (answer.statusCode < 300) return parsed
    throw new Refusal(refusalText(parsed))
  }
}

interface Refused {
  error: string
  message: string
  details?: { path?: string; message: string }[]
  retryAfter?: number
}

function refusalText({ error, message, details = [], retryAfter }: Refused): string {
  const faults = details.map(({ path, message: fault }) => `${path ? `${path} ` : ""}${fault}.`)
  const wait = retryAfter === undefined ? [] : [`Try again in ${retryAfter} s.`]
  return [`${message} (${error})`, ...faults, ...wait].join(" ")
}
