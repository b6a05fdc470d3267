/** A receiver of webhooks in a test: a real HTTP server that stores what it gets, and answers as the test says. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { until } from "./e2e/program.ts"

export interface Received {
  path: string
  headers: Record<string, string>
  /** The bytes as received. */
  body: string
}

/** Answers one request, or leaves it hanging. */
type Answer = (response: ServerResponse, received: Received, request: IncomingMessage) => void

export interface Receiver {
  url: string
  port: number
  received: Received[]
  /** Connections that were made to it. */
  connections(): number
  /** What it answers from now on: a status, or whatever a function does. */
  answer(how: number | Answer): void
  /** Resolves once this many requests have arrived. */
  got(n: number): Promise<void>
  stop(): Promise<void>
}

export async function startReceiver(how: number | Answer = 200): Promise<Receiver> {
  const received: Received[] = []
  let connections = 0
  let answer = how
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on("data", chunk => chunks.push(chunk))
    request.on("end", () => {
      const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]))
      const one = { path: request.url ?? "", headers, body: Buffer.concat(chunks).toString("utf8") }
      received.push(one)
      if (typeof answer === "number") response.writeHead(answer).end("thanks")
      else answer(response, one, request)
    })
  })
  server.on("connection", () => connections++)
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/hooks`,
    port,
    received,
    connections: () => connections,
    answer: next => {
      answer = next
    },
    got: n => until(`${n} requests came`, () => received.length >= n),
    stop: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
}
