/** Shops of each framework that needs no package of its own, with one priced route whose handler fails on demand. */
import { createServer, type IncomingMessage } from "node:http"
import { createRequire } from "node:module"
import type { AddressInfo } from "node:net"
import { Readable } from "node:stream"
import fastify from "fastify"
import type { ChargeOptions } from "../src/middleware/charge.ts"
import * as onExpress from "../src/middleware/express.ts"
import * as onFastify from "../src/middleware/fastify.ts"
import * as onNext from "../src/middleware/next.ts"
import type { PaywallOptions } from "../src/middleware/paywall.ts"

const express = createRequire(import.meta.url)("express")

/** How a handler fails; undefined: it does not. */
export type Failure = "throws" | "answers 500" | "answers 404" | "breaks off" | undefined

export interface Shop {
  url: string
  /** How often the handler ran. */
  runs(): number
  stop(): void
}

export type Sells = { charge: ChargeOptions<never> } | { paywall: PaywallOptions }
export type Start = (sells: Sells, failure: () => Failure) => Promise<Shop>

export const CONTENT = { forecast: "sunny" }

/** Starts it on loopback. */
export async function listening(server: ReturnType<typeof createServer>, runs: () => number): Promise<Shop> {
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/weather`,
    runs,
    stop: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

const expressShop: Start = async (sells, failure) => {
  let runs = 0
  const app = express()
  const guard = "charge" in sells ? onExpress.charge(sells.charge as never) : onExpress.paywall(sells.paywall)
  app.get(
    "/weather",
    guard,
    (_request: unknown, response: import("node:http").ServerResponse & { json(o: object): void }) => {
      runs++
      const now = failure()
      if (now === "throws") throw new Error("no weather")
      if (now === "answers 500" || now === "answers 404") return response.writeHead(Number(now.slice(8))).end("none")
      if (now !== "breaks off") return response.json(CONTENT)
      response.write(JSON.stringify(CONTENT).slice(0, 5))
      response.destroy()
    },
  )
  app.use((error: Error, _request: unknown, response: import("node:http").ServerResponse, _next: unknown) => {
    response.writeHead(500).end(error.message)
  })
  return await listening(createServer(app), () => runs)
}

const fastifyShop: Start = async (sells, failure) => {
  let runs = 0
  const app = fastify()
  const preHandler = "charge" in sells ? onFastify.charge(sells.charge as never) : onFastify.paywall(sells.paywall)
  app.get("/weather", { preHandler }, async (_request, reply) => {
    runs++
    const now = failure()
    if (now === "throws") throw new Error("no weather")
    if (now === "answers 500" || now === "answers 404") return await reply.code(Number(now.slice(8))).send("none")
    if (now !== "breaks off") return CONTENT
    reply.hijack()
    reply.raw.write(JSON.stringify(CONTENT).slice(0, 5))
    reply.raw.destroy()
    return reply
  })
  await app.ready()
  return await listening(app.server as never, () => runs)
}

/** Next's route handlers take and give what `fetch` does. */
const nextShop: Start = async (sells, failure) => {
  let runs = 0
  const handler = async (): Promise<Response> => {
    runs++
    const now = failure()
    if (now === "throws") throw new Error("no weather")
    if (now === "answers 500" || now === "answers 404") return new Response("none", { status: Number(now.slice(8)) })
    if (now !== "breaks off") return Response.json(CONTENT)
    const pull = (to: ReadableStreamDefaultController) => to.error(new Error("broken"))
    return new Response(new ReadableStream({ pull }))
  }
  const GET =
    "charge" in sells ? onNext.withCharge(handler, sells.charge as never) : onNext.withPaywall(handler, sells.paywall)
  const server = createServer(async (incoming: IncomingMessage, answer) => {
    try {
      const headers = Object.entries(incoming.headers).map(([name, value]): [string, string] => [name, `${value}`])
      const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
        method: `${incoming.method}`,
        headers,
      })
      const response = await GET(request, {})
      answer.writeHead(response.status, Object.fromEntries(response.headers))
      if (!response.body) return void answer.end()
      Readable.fromWeb(response.body as never)
        .on("error", () => answer.destroy())
        .pipe(answer)
    } catch {
      answer.writeHead(500).end("broken")
    }
  })
  return await listening(server, () => runs)
}

/** By framework. */
export const shops: Record<string, Start> = { express: expressShop, fastify: fastifyShop, next: nextShop }
