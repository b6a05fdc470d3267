/** `POST /mcp` offers an assistant its tools, over streamable HTTP and without sessions. */
import type { FastifyReply, FastifyRequest } from "fastify"
import { Type } from "typebox"
import type { Context } from "../../platform/context.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { bearerKeyNeeded } from "../../platform/http/authenticate.ts"
import type { Server } from "../../platform/http/server.ts"
import { openApiCalls } from "./call-api.ts"
import { openTools } from "./open-tools.ts"
import { type AnswerSchema, serveMcp } from "./serve-mcp.ts"
import { partedSchema, type Schema } from "./untrusted.ts"

const Options = Type.Object({ write: Type.Optional(Type.Boolean()) })
const FIRST_ERROR = 400
const METHOD_NOT_ALLOWED = 405
/** The headers of the protocol's answer that are passed on. All other headers are the service's own. */
const PASSED = ["content-type", "mcp-session-id", "mcp-protocol-version"]
/**
 * What the log contains instead of a protocol error, because such an error repeats headers, ids and names from the
 * request.
 */
const LOGGED = JSON.stringify({
  message: "The protocol refused the request. The answer is not kept: it has text of the request.",
})

export function mcpRoutes(app: Server, ctx: Context): void {
  const schemaOf = answerSchemas(() => app.swagger())
  app.post(
    "/mcp",
    { schema: { hide: true, querystring: Options }, config: { errors: ["FOREIGN_REQUEST"] } },
    async (request, reply) => {
      const { apiKey } = request
      if (!apiKey) throw bearerKeyNeeded()
      // A browser sends `Origin` with every POST, so a page of another site can't use a key that it got hold of.
      const { origin } = request.headers
      if (origin !== undefined && origin !== new URL(ctx.settings.baseUrl).origin) throw new ApiError("FOREIGN_REQUEST")
      // The limit counts HTTP requests, and a batch would put any number of calls into one.
      if (Array.isArray(request.body)) throw invalid("", "must be one JSON-RPC request, not a batch: send each alone")
      const call = openApiCalls(app, request)
      const tools = await openTools(ctx, { apiKey, writes: request.query.write === true, call })
      // The log gets neither arguments nor a tool's name that the caller made up.
      const tool = calledTool(request.body)
      if (tool !== undefined && Object.hasOwn(tools, tool)) request.loggedAs = `/mcp/${tool}`
      const answer = await serveMcp(plainRequest(request, ctx.settings.baseUrl), request.body, tools, schemaOf)
      reply.code(answer.status)
      if (answer.status >= FIRST_ERROR) request.refusal = LOGGED
      for (const name of PASSED) {
        const value = answer.headers.get(name)
        if (value !== null) reply.header(name, value)
      }
      return reply.send(await answer.text())
    },
  )
  for (const method of ["GET", "DELETE"] as const)
    app.route({ method, url: "/mcp", exposeHeadRoute: false, schema: { hide: true }, handler: noSession })
}

function calledTool(body: unknown): string | undefined {
  const { method, params } = (body ?? {}) as { method?: unknown; params?: { name?: unknown } | null }
  const name = method === "tools/call" ? params?.name : undefined
  return typeof name === "string" ? name : undefined
}

/** Answers the requests with which clients try to open or end a session. Clients continue without a session. */
const noSession = async (_: FastifyRequest, reply: FastifyReply) =>
  reply
    .code(METHOD_NOT_ALLOWED)
    .header("allow", "POST")
    .send({ jsonrpc: "2.0", id: null, error: { code: -32_000, message: "There are no sessions: use POST." } })

/** The request in the form that the protocol's library reads, without the body, which is passed on parsed. */
function plainRequest({ headers, url }: FastifyRequest, baseUrl: string): Request {
  const passed = Object.entries(headers).flatMap(([name, value]) =>
    typeof value === "string" && /^(accept|content-type|mcp-.*|last-event-id)$/.test(name) ? [[name, value]] : [],
  )
  return new Request(new URL(url, baseUrl), { method: "POST", headers: Object.fromEntries(passed) })
}

interface Document {
  paths: Record<
    string,
    Record<string, { responses: Record<string, { content?: { "application/json"?: { schema: Schema } } }> }>
  >
  components: { schemas: Record<string, Schema> }
}

/** The schemas of answers, from the document that /docs shows. Each schema is built once. */
function answerSchemas(documentOf: () => unknown): AnswerSchema {
  let document: Document | undefined
  const made = new Map<string, ReturnType<AnswerSchema>>()
  return route => {
    const known = made.get(route)
    if (known) return known
    document ??= documentOf() as Document
    const [method = "", path = ""] = route.split(" ")
    const operation = document.paths[path.replaceAll(/:(\w+)/g, "{$1}")]?.[method.toLowerCase()]
    const good = operation?.responses["200"] ?? operation?.responses["201"]
    const definitions: Record<string, Schema> = {}
    const schema = partedSchema(
      good?.content?.["application/json"]?.schema ?? {},
      document.components.schemas,
      definitions,
    )
    made.set(route, { schema, definitions })
    return { schema, definitions }
  }
}
