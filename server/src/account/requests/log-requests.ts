/**
 * Writes the request log after each answer. Only routes of a merchant's members and API keys have these hooks, so a
 * payer's request runs none of them.
 */
import type { FastifyReply, FastifyRequest, RouteOptions } from "fastify"
import type { Context } from "../../platform/context.ts"
import type { RouteAccess } from "../../platform/http/route-access.ts"
import type { Server } from "../../platform/http/server.ts"
import { requestsUnlogged } from "../../platform/metrics.ts"
import { type Entry, writeRequests } from "./queries.ts"

/** How long an entry waits to be batched, in milliseconds, and the batch size. */
const GATHER_MS = 500
const BATCH = 500
/**
 * The maximum number of waiting entries (about 10 MB), in all and per caller. Further entries are counted and dropped.
 */
const MOST = 10_000
const MOST_OF_ONE = 2_000
const REFUSAL_BYTES = 1_024
/** A longer error is not searched for its code. */
const PARSED_CHARACTERS = 100_000

declare module "fastify" {
  interface FastifyRequest {
    /** The answer's body, if it is an error. A route can set this field to log another text instead. */
    refusal?: string
    /** The name that the log shows instead of the route, such as a tool of an assistant. */
    loggedAs?: string
  }
}

/** Logs the requests of a server's routes for members and API keys. Call it before the routes are added. */
export function logRequests(app: Server, ctx: Context): void {
  const queue = openQueue(ctx)
  app.decorateRequest("refusal", undefined)
  app.decorateRequest("loggedAs", undefined)
  app.addHook("onRoute", route => {
    if (!isLogged(route.config?.access)) return
    route.onSend = [...listOf(route.onSend), keepRefusal]
    route.onResponse = [
      ...listOf(route.onResponse),
      (request: FastifyRequest, reply: FastifyReply, done: () => void) => {
        if (request.apiKey ?? request.subject) queue.add(entryOf(ctx, request, reply))
        done()
      },
    ] as NonNullable<RouteOptions["onResponse"]>
  })
  app.addHook("onClose", () => queue.close())
}

/** Whether only members or API keys may call a route. Payers also call the routes that strangers may use. */
const isLogged = (access: RouteAccess | undefined): boolean =>
  access?.by === "member" || access?.by === "key" || access?.by === "bearer key"

const listOf = <T>(hooks: T | T[] | undefined): T[] => (hooks === undefined ? [] : ([hooks].flat() as T[]))

function keepRefusal(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: null, payload: unknown) => void,
): void {
  if (reply.statusCode >= 400 && typeof payload === "string") request.refusal ??= payload
  done(null, payload)
}

function entryOf(ctx: Context, request: FastifyRequest, reply: FastifyReply): Entry {
  const { apiKey, subject, merchantId, refusal, method, id: requestId } = request
  return {
    at: ctx.now(),
    requestId,
    method,
    route: request.loggedAs ?? request.routeOptions.url ?? "",
    status: reply.statusCode,
    code: refusal === undefined ? null : codeOf(refusal),
    refusal: refusal === undefined ? null : headOf(refusal),
    durationMs: Math.round(reply.elapsedTime),
    keyId: apiKey?.id ?? null,
    merchantId: apiKey?.merchantId ?? merchantId ?? null,
    iss: storable(subject?.iss),
    sub: storable(subject?.sub),
    named: namedOf(request.headers["sluice-merchant"]),
  }
}

const namedOf = (header: string | string[] | undefined): string | null => (typeof header === "string" ? header : null)

/** Replaces text that JSON in the database can't hold, because otherwise the whole batch would fail. */
const storable = (text: string | undefined): string | null => text?.toWellFormed().replaceAll("\0", "\ufffd") ?? null

function codeOf(answer: string): string | null {
  if (answer.length > PARSED_CHARACTERS) return null
  try {
    const { error } = JSON.parse(answer) as { error?: unknown }
    return typeof error === "string" ? error : null
  } catch {
    return null
  }
}

/** The first kilobyte of a text, cut between characters and made storable. */
const headOf = (text: string): string =>
  Buffer.from(text.slice(0, REFUSAL_BYTES))
    .subarray(0, REFUSAL_BYTES)
    .toString("utf8")
    .replace(/\ufffd+$/, "")
    .replaceAll("\0", "\ufffd")

/**
 * Queues entries to be written. While a batch is being written or the database fails, up to ten thousand entries wait.
 */
function openQueue(ctx: Context) {
  let waiting: Entry[] = []
  const byCaller = new Map<string, number>()
  let timer: NodeJS.Timeout | undefined
  let writing: Promise<void> | undefined

  const callerOf = ({ keyId, merchantId, sub }: Entry): string => keyId ?? merchantId ?? sub ?? ""

  async function writeAll(): Promise<void> {
    while (waiting.length > 0) {
      const batch = waiting.slice(0, BATCH)
      waiting = waiting.slice(BATCH)
      for (const entry of batch) {
        const left = (byCaller.get(callerOf(entry)) ?? 1) - 1
        if (left > 0) byCaller.set(callerOf(entry), left)
        else byCaller.delete(callerOf(entry))
      }
      try {
        await writeRequests(ctx, batch)
      } catch (error) {
        requestsUnlogged.inc(batch.length)
        ctx.log.warn({ err: error, requests: batch.length }, "requests could not be logged")
      }
    }
  }

  const write = (): Promise<void> => {
    clearTimeout(timer)
    timer = undefined
    writing ??= writeAll().finally(() => {
      writing = undefined
    })
    return writing
  }

  return {
    add: (entry: Entry): void => {
      const caller = callerOf(entry)
      const ofCaller = byCaller.get(caller) ?? 0
      if (waiting.length >= MOST || ofCaller >= MOST_OF_ONE) {
        requestsUnlogged.inc()
        return
      }
      byCaller.set(caller, ofCaller + 1)
      waiting.push(entry)
      if (waiting.length >= BATCH) void write()
      else timer ??= setTimeout(() => void write(), GATHER_MS).unref()
    },
    close: write,
  }
}
