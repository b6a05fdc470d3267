/** The HTTP server without its routes: reads requests, finds out who is calling, admits callers, and formats errors. */
import { randomUUID } from "node:crypto"
import type { IncomingMessage, ServerResponse } from "node:http"
import { Readable } from "node:stream"
import cors from "@fastify/cors"
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox"
import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyHttpOptions,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type RawServerDefault,
} from "fastify"
import { withActor } from "../actor.ts"
import type { Context } from "../context.ts"
import { DatabaseUnavailable } from "../db/pool.ts"
import { ApiError, type ErrorCode, errorTable, invalid, retryAfterOf } from "../errors.ts"
import { requestLog } from "../log.ts"
import { connectionsDropped, httpDuration } from "../metrics.ts"
import { actorOf } from "./actor.ts"
import { admitCallers } from "./admit-callers.ts"
import { admitMember } from "./admit-member.ts"
import { type Identities, isPrivate } from "./authenticate.ts"
import { refuseBroken } from "./client-errors.ts"
import { boundedConnections, type Connections, KEEP_ALIVE_MS, REQUEST_TIMEOUT_MS } from "./connections.ts"
import { endWithCredential } from "./end-with-credential.ts"
import type { ErrorPage } from "./error-page.ts"
import type { Bounds } from "./held-connections.ts"
import { isStorable, NOT_STORABLE, parseJson } from "./json.ts"
import { type Limiter, limiter, nobody } from "./limit-requests.ts"
import { pathOf } from "./path.ts"
import { type RouteAccess, registeredAccess } from "./route-access.ts"
import { probes, traceRequests } from "./trace-requests.ts"
import { buildSerializer, detailsOf, validatorFactory } from "./validation.ts"
import { whenReady } from "./when-ready.ts"

export type Server = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>

type Compilers = NonNullable<NonNullable<FastifyHttpOptions<RawServerDefault>["schemaController"]>["compilersFactory"]>
type BuildValidator = NonNullable<Compilers["buildValidator"]>

const BODY_LIMIT = 256 * 1024
/** Text is in memory twice while it is sent: as text, and as the bytes that it is encoded to. */
const HELD_PER_CHARACTER = 2
/** The bytes that an answer sent in parts holds at a time: one part being rendered, one ready, one being sent. */
const HELD_PER_STREAM = 1024 * 1024

declare module "fastify" {
  interface FastifyContextConfig {
    /** The bytes that an answer of this route holds while it streams, if they differ from those of a long list. */
    streamBytes?: number
  }
}
const exposed = [
  "X-Request-Id",
  "X-RateLimit-Limit",
  "X-RateLimit-Remaining",
  "X-RateLimit-Reset",
  "Retry-After",
  "Idempotent-Replayed",
  "PAYMENT-REQUIRED",
  "PAYMENT-RESPONSE",
  "X-PAYMENT-RESPONSE",
  "Sluice-Retry-Token",
].join(", ")

declare module "fastify" {
  interface FastifyInstance {
    identities: Identities
  }
}

/** The id of the merchant of a console request: from its API key or its membership; throws `UNAUTHORIZED`. */
export async function callingMerchant({ merchantId }: FastifyRequest): Promise<string> {
  if (merchantId === undefined) throw new ApiError("UNAUTHORIZED")
  return merchantId
}

/** For routes that need no body: a missing body is the same as an empty one. */
export async function orEmptyBody(request: FastifyRequest): Promise<void> {
  if (request.body === undefined) request.body = {}
}

/**
 * Opens a server without routes; add them before it listens. `bounds` replace the default limits. `rows` are the table
 * rows of routes that exist only in a test: a route without a row is refused.
 */
export function openServer(
  ctx: Context,
  identities: Identities,
  bounds?: Bounds,
  errorPage?: ErrorPage,
  rows?: Record<string, RouteAccess>,
): Server {
  const connections = boundedConnections((reason, peer) => {
    connectionsDropped.inc({ reason })
    ctx.log.info({ reason, peer }, "connection closed because it exceeded a limit")
  }, bounds)
  const requests = limiter(ctx, errorPage)
  const app = Fastify(serverOptions(ctx, connections, requests, errorPage)).withTypeProvider<TypeBoxTypeProvider>()

  app.addHook("onRoute", route => {
    route.config = { ...route.config, access: registeredAccess(route, rows) }
  })
  app.decorate("identities", identities)
  app.decorateRequest("subject", undefined)
  app.decorateRequest("sessionId", undefined)
  app.decorateRequest("apiKey", undefined)
  app.decorateRequest("wallet", undefined)
  app.decorateRequest("member", undefined)
  app.decorateRequest("merchantId", undefined)
  app.decorateRequest("span", undefined)
  readJsonAlone(app)
  if (ctx.tracing) traceRequests(app, ctx.tracing)
  app.addHook("onRequest", (request, reply, done) => {
    reply.header("x-request-id", request.id)
    // Answers contain tokens, secrets and payment data, so no cache on the way may store them.
    if (/^\/(api|x402|mcp|readyz|metrics)(\/|$)/.test(pathOf(request))) reply.header("cache-control", "no-store")
    checked(done, () => checkHost(request.raw))
  })
  answerCors(app, ctx)
  let isStopping = false
  app.addHook("preClose", async () => {
    isStopping = true
    connections.close()
  })
  admitCallers(app, identities, requests, () => isStopping)
  app.addHook("preValidation", (request, _, done) =>
    checked(done, () => {
      checkStorable(request.query as object)
      checkStorable(request.params as object)
    }),
  )
  // The last hook before a route's handler, because a context set by an earlier hook is lost while the body is read.
  app.addHook("preHandler", (request, _reply, done) => withActor(actorOf(request), done))
  // Runs on behalf of the actor, because a person's first request creates a merchant.
  app.addHook("preHandler", (request, _reply, done) => {
    const { access } = request.routeOptions.config
    if (access?.by !== "member") return done()
    return admitMember(request, access)
  })
  app.addHook("onSend", (request, reply, payload, done) => {
    // All callers share a Buffer, so such an answer adds no memory.
    if (typeof payload === "string") connections.hold(reply.raw, payload.length * HELD_PER_CHARACTER)
    else if (payload instanceof Readable) {
      connections.hold(reply.raw, request.routeOptions.config.streamBytes ?? HELD_PER_STREAM)
      endWithCredential(ctx, request, reply)
    }
    done()
  })
  recordAnswers(app, ctx)
  app.setErrorHandler((error: FastifyError, request, reply) => sendError(ctx, request, reply, error, errorPage))
  app.setNotFoundHandler((request, reply) => sendError(ctx, request, reply, new ApiError("NOT_FOUND"), errorPage))
  return app
}

function serverOptions(
  ctx: Context,
  connections: Connections,
  { admit }: Limiter,
  errorPage?: ErrorPage,
): FastifyHttpOptions<RawServerDefault> {
  const { trustedProxies } = ctx.settings
  return {
    bodyLimit: BODY_LIMIT,
    requestTimeout: REQUEST_TIMEOUT_MS,
    serverFactory: listener =>
      connections.open(listener, { requestTimeout: REQUEST_TIMEOUT_MS, keepAliveTimeout: KEEP_ALIVE_MS }),
    logger: false,
    trustProxy: trustedProxies.length > 0 ? trustedProxies : false,
    genReqId: request => saneId(request.headers["x-request-id"]) ?? randomUUID(),
    // Node's own answer would not be one of this API's errors. `admitCallers` refuses requests during a stop.
    return503OnClosing: false,
    forceCloseConnections: "idle",
    // A URL that can't be decoded, or has a parameter that is too long, arrives here without passing any hook.
    frameworkErrors: (error, request, reply) => {
      void reply.header("x-request-id", request.id)
      void whenReady(
        admit(request, reply, nobody),
        isAdmitted => isAdmitted && sendError(ctx, request, reply, error, errorPage),
      )
    },
    clientErrorHandler: (error, socket) => connections.endInTurn(socket, () => refuseBroken(error, socket)),
    schemaController: {
      compilersFactory: { buildValidator: (() => validatorFactory) as unknown as BuildValidator, buildSerializer },
    },
  }
}

function readJsonAlone(app: Server): void {
  app.removeAllContentTypeParsers()
  // The decoder drops a byte-order mark, which some editors and languages put first (RFC 8259, 8.1).
  const utf8 = new TextDecoder("utf-8", { fatal: true })
  app.addContentTypeParser(
    "application/json",
    { parseAs: "buffer" },
    async (request: FastifyRequest, bytes: Buffer) => {
      // JSON is UTF-8 (RFC 8259, 8.1); bytes in another encoding would be read as other text.
      const charset = CHARSET.exec(request.headers["content-type"] ?? "")?.[1]
      if (charset !== undefined && !/^(utf-?8|us-ascii)$/i.test(charset)) throw new ApiError("UNSUPPORTED_MEDIA_TYPE")
      return parseJson(decoded(utf8, bytes))
    },
  )
}

/**
 * The text of these bytes. Bytes that are not UTF-8 are refused. Otherwise, different bytes could be read as the same
 * text.
 */
function decoded(decoder: TextDecoder, bytes: Buffer): string {
  try {
    return decoder.decode(bytes)
  } catch {
    throw invalid("", "must be text in UTF-8")
  }
}

function answerCors(app: Server, ctx: Context): void {
  const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
  // In strict mode, an OPTIONS request that is not a preflight would be refused in plain text.
  const anyOrigin = { origin: "*", methods, exposedHeaders: exposed, strictPreflight: false }
  // Never with `Access-Control-Allow-Credentials`: a console on another origin uses a bearer token instead of a cookie.
  const consoles = { ...anyOrigin, origin: ctx.settings.consoleOrigins }
  const noOrigin = { ...anyOrigin, origin: false }
  app.register(cors, {
    delegator: (request, done) => {
      const path = pathOf(request)
      done(null, path.startsWith("/sandbox/") || path === "/mcp" ? noOrigin : isPrivate(path) ? consoles : anyOrigin)
    },
  })
}

/** Measures and logs each request after it is answered. Probes are logged only at level `debug`. */
function recordAnswers(app: Server, ctx: Context): void {
  const log = requestLog(ctx.log)
  app.addHook("onResponse", (request, reply, done) => {
    const { method, id: requestId } = request
    const route = request.routeOptions.url ?? "unknown"
    const status = reply.statusCode
    httpDuration.observe({ method, route, status }, reply.elapsedTime / 1_000)
    const level = probes.includes(route) ? "debug" : "info"
    if (ctx.log.isLevelEnabled(level))
      log[level]({ requestId, method, route, status, ms: Math.round(reply.elapsedTime) }, "request")
    done()
  })
}

const CHARSET = /;\s*charset\s*=\s*"?([^\s;"]+)/i

/** HTTP/1.1 requires exactly one Host, and proxies differ in which of two they use (RFC 9112, 3.2). */
function checkHost({ rawHeaders, httpVersion }: IncomingMessage): void {
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.length === 4 && HOST.test(rawHeaders[i] ?? "")) hosts++
  if (hosts > 1) throw invalid("Host", "must be sent only once")
  if (hosts === 0 && httpVersion === "1.1") throw invalid("Host", "is required")
}

const HOST = /^host$/i

/** Refuses parameters that a database can't store. */
function checkStorable(values: object): void {
  for (const name in values)
    if (!isStorable(name) || !isStorable(String((values as Record<string, unknown>)[name])))
      throw invalid(name, NOT_STORABLE)
}

/** Ends a synchronous hook. Each request passes all hooks, and a callback costs less than a promise. */
function checked(done: (error?: FastifyError) => void, check: () => void): void {
  try {
    check()
  } catch (error) {
    return void done(error as FastifyError)
  }
  done()
}

const saneId = (header: unknown): string | undefined =>
  typeof header === "string" && /^[\w.:-]{1,128}$/.test(header) ? header : undefined

/** Framework errors that have an entry in our table. All other 4xx errors are `VALIDATION_ERROR`. */
const frameworkCodes: Record<string, ErrorCode> = {
  FST_ERR_CTP_BODY_TOO_LARGE: "PAYLOAD_TOO_LARGE",
  FST_ERR_CTP_INVALID_MEDIA_TYPE: "UNSUPPORTED_MEDIA_TYPE",
  FST_ERR_NOT_FOUND: "NOT_FOUND",
  FST_ERR_MAX_PARAM_LENGTH: "NOT_FOUND",
}

/** Messages for errors whose own message would not help a caller. */
const frameworkWords: Record<string, string> = {
  FST_ERR_BAD_URL: "The URL can't be decoded. Check its percent signs.",
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: "The body's length differs from its Content-Length.",
}

/** The error of the table for an error that a route or the framework has thrown; undefined for an unexpected one. */
export function toApiError(
  error: Error & { code?: string; statusCode?: number; validation?: unknown },
): ApiError | undefined {
  if (error instanceof ApiError) return error
  if (error instanceof DatabaseUnavailable) return new ApiError("DATABASE_UNAVAILABLE", undefined, undefined, error)
  if (Array.isArray(error.validation)) return new ApiError("VALIDATION_ERROR", detailsOf(error.validation))
  const code = frameworkCodes[error.code ?? ""]
  if (code) return new ApiError(code)
  if (error.statusCode !== undefined && error.statusCode < 500)
    return invalid("", frameworkWords[error.code ?? ""] ?? error.message)
  return undefined
}

/** Answers with an error of the table, and logs it if this service is at fault. */
export function sendError(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  error: Error,
  errorPage?: ErrorPage,
): void {
  const known = toApiError(error)
  // `NOT_READY` answers a probe, or a request during a stop; the reason is logged where it is noticed. A merchant is
  // responsible for an origin, and an origin's callers for the number of waiting calls.
  const isElsewhere = known && ["NOT_READY", "ORIGIN_FAILED", "ORIGIN_BUSY"].includes(known.code)
  if (!known || (errorTable[known.code].status >= 500 && !isElsewhere))
    ctx.log.error(
      { err: known?.cause ?? error, requestId: request.id, route: request.routeOptions.url },
      "a request failed",
    )
  const { code, message, details } = known ?? new ApiError("INTERNAL_ERROR")
  request.span?.set({ "error.type": code })
  const retryAfterS = retryAfterOf(code)
  if (retryAfterS !== undefined) void reply.header("retry-after", retryAfterS)
  void reply.code(errorTable[code].status)
  const page = errorPage?.(request, reply, code)
  if (page !== undefined) return void reply.send(page)
  void reply.send({
    error: code,
    message,
    requestId: request.id,
    ...(code === "RATE_LIMITED" ? { retryAfter: retryAfterS } : {}),
    ...(details ? { details } : {}),
  })
}
