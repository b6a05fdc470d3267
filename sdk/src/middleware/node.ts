/** Holds back a handler's writes to a Node response, whichever framework makes them. */
import type { IncomingMessage, OutgoingHttpHeader, ServerResponse } from "node:http"
import { type Admitted, type Answer, type Asked, type Gate, isAnswer, MAX_HELD, notePayer, tooLarge } from "./gate.ts"

/** A request of Node in the middleware's terms. */
export const askedOf = (native: unknown, raw: IncomingMessage, url: string, body: unknown): Asked => ({
  method: raw.method ?? "GET",
  url,
  header: name => {
    const value = raw.headers[name]
    return Array.isArray(value) ? value.join(",") : value
  },
  body: async () => body,
  native,
})

/** Answers the request, or calls `proceed` and keeps its answer until the payment is settled. Rejects if the gate does. */
export async function guard(gate: Gate, asked: Asked, response: ServerResponse, proceed: () => void): Promise<void> {
  const result = await gate.admit(asked)
  if (response.destroyed) return
  if (isAnswer(result)) return send(response, result)
  notePayer(asked.native as object, result.payer)
  if (result.isHeld) hold(response, result)
  else follow(response, result)
  proceed()
}

function send(response: ServerResponse, { status, headers, body }: Answer): void {
  // Headers that the handler wrote describe its own answer. Headers that a CORS middleware wrote are for every answer.
  for (const name of response.getHeaderNames())
    if (!/^(access-control-|vary$)/i.test(name) || name in headers) response.removeHeader(name)
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
  response.statusCode = status
  response.end(response.req?.method === "HEAD" ? undefined : body)
}

type Headers = Record<string, OutgoingHttpHeader | undefined> | OutgoingHttpHeader[]

/** Stores the written status and headers instead of sending them. */
function keep(response: ServerResponse, status: number, headers: Headers | undefined): void {
  response.statusCode = status
  if (Array.isArray(headers))
    for (let i = 0; i + 1 < headers.length; i += 2) response.setHeader(`${headers[i]}`, headers[i + 1] as string)
  else
    for (const [name, value] of Object.entries(headers ?? {})) if (value !== undefined) response.setHeader(name, value)
}

function hold(response: ServerResponse, admitted: Admitted): void {
  const { writeHead, write, end, flushHeaders } = response
  const chunks: Buffer[] = []
  let size = 0
  let isOver = false
  const add = (chunk: unknown, encoding: unknown) => {
    if (chunk === undefined || chunk === null || typeof chunk === "function") return
    const bytes = Buffer.from(chunk as string, (typeof encoding === "string" ? encoding : "utf8") as BufferEncoding)
    size += bytes.length
    if (size <= MAX_HELD) chunks.push(bytes)
    else chunks.length = 0
  }
  const called = (...args: unknown[]) => {
    const callback = args.find(arg => typeof arg === "function") as (() => void) | undefined
    if (callback) queueMicrotask(callback)
  }
  const finish = async () => {
    const body = Buffer.concat(chunks)
    const handled = { status: response.statusCode, headers: headersOf(response), body, isWhole: !response.destroyed }
    const result = size > MAX_HELD ? tooLarge() : await admitted.finish(handled).catch(failed)
    Object.assign(response, { writeHead, write, end, flushHeaders })
    if (isAnswer(result)) return send(response, result)
    for (const [name, value] of Object.entries(result)) response.setHeader(name, value)
    response.end(body)
  }
  Object.assign(response, {
    writeHead: (status: number, ...rest: unknown[]) => {
      keep(response, status, rest.find(arg => typeof arg === "object" && arg !== null) as Headers | undefined)
      return response
    },
    flushHeaders: () => undefined,
    write: (chunk: unknown, encoding: unknown, callback: unknown) => {
      add(chunk, encoding)
      called(encoding, callback)
      return true
    },
    end: (chunk: unknown, encoding: unknown, callback: unknown) => {
      if (isOver) return response
      isOver = true
      add(chunk, encoding)
      called(chunk, encoding, callback)
      void finish()
      return response
    },
  })
}

function headersOf(response: ServerResponse): Record<string, string> {
  const headers = Object.entries(response.getHeaders()).filter(([name]) => name !== "set-cookie")
  return Object.fromEntries(headers.map(([name, value]) => [name, `${value}`]))
}

/** The gate does not reject. If it ever does, nothing is given away. */
const failed = (): Answer => ({ status: 500, headers: {}, body: "" })

/** Adds headers to an answer that is sent while it is written, and reports its end to the gate. */
function follow(response: ServerResponse, admitted: Admitted): void {
  const { writeHead } = response
  response.writeHead = ((status: number, ...rest: never[]) => {
    for (const [name, value] of Object.entries(admitted.headersFor(status))) response.setHeader(name, value)
    response.writeHead = writeHead
    return writeHead.call(response, status, ...rest)
  }) as typeof writeHead
  response.once("close", () => {
    void admitted.finish({ status: response.statusCode, isWhole: response.writableFinished }).catch(() => undefined)
  })
}
