/**
 * A span for each request, so that the payment that the request creates is traced. The caller's own trace is never
 * continued. Otherwise anybody who sends a `traceparent` could have everything recorded, or add spans to another
 * person's trace. A trace that a merchant names is only linked.
 */
import type { FastifyInstance, FastifyRequest } from "fastify"
import { parseTraceparent } from "../tracing/trace.ts"
import type { Span, Tracing } from "../tracing/tracing.ts"

declare module "fastify" {
  interface FastifyRequest {
    /** Undefined if the request is not traced. */
    span: Span | undefined
  }
}

/** Probes come every few seconds, so their log lines and spans would hide everything else. */
export const probes = ["/healthz", "/readyz", "/metrics"]

/** Adds the hooks. Call it before any other hook is added, so that the others run inside the span. */
export function traceRequests(app: Pick<FastifyInstance, "addHook">, tracing: Tracing): void {
  app.addHook("onRequest", (request, reply, done) => {
    const { method, routeOptions } = request
    const route = request.is404 ? undefined : routeOptions.url
    if (route === undefined || probes.includes(route)) return done()
    // The path is left out, because it contains ids that open a checkout, and requests that callers of a proxied API
    // send.
    const attributes = { "http.request.method": method, "http.route": route, "sluice.request.id": request.id }
    const span = tracing.start(`${method} ${route}`, { kind: "server", parent: null, attributes })
    request.span = span
    // A caller that disconnects gets no answer, and its span ends too.
    reply.raw.once("close", () => end(request, reply.raw.writableFinished ? reply.statusCode : undefined))
    tracing.within(span, done)
  })
  // The body arrives in events of its connection, which are outside the span.
  app.addHook("preValidation", (request, _reply, done) => within(tracing, request, done))
  app.addHook("onResponse", (request, reply, done) => {
    within(tracing, request, done)
    end(request, reply.statusCode)
  })
}

const within = (tracing: Tracing, { span }: FastifyRequest, done: () => void): void =>
  span ? tracing.within(span, done) : done()

/**
 * Ends the span once. A request refused by a limit never ends its span, so it appears in no trace. Otherwise, a flood
 * would fill the traces.
 */
function end(request: FastifyRequest, status: number | undefined): void {
  const { span } = request
  request.span = undefined
  if (!span || status === 429) return
  span.set({ "http.response.status_code": status })
  if (status === undefined) span.fail("aborted")
  else if (status >= 500) span.fail()
  span.end()
}

/** Links the trace that an authenticated caller names. The caller's `tracestate` is not read. */
export function linkCaller({ span, headers }: FastifyRequest): void {
  const caller = span && parseTraceparent(headers.traceparent)
  if (caller) span.link(caller)
}
