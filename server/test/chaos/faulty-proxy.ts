/**
 * A node that fails and lies at random, between workers and a real chain: it answers 502, says "ok" and sends nothing, takes
 * a transaction and breaks the line, returns null for receipts. And it ends a worker just before or after what it sends
 * reaches the chain. Each worker has a path of its own, so that it is known who asks.
 */
import { createServer, type ServerResponse } from "node:http"
import { text as textOf } from "node:stream/consumers"
import { type Hex, keccak256 } from "viem"

export interface Rates {
  /** An exchange ends as 502 and nothing is passed on. */
  refuse: number
  /** An exchange is passed on and never answered. */
  breakOff: number
  /** An exchange with transactions is passed on and never answered. */
  takeAndBreak: number
  /** A transaction is answered with its hash and not passed on. */
  swallow: number
  /** A receipt is returned as null. */
  forget: number
  /** A block that is asked for by its number is returned as null. */
  hide: number
  /** One endpoint of several returns a false count, block or receipt. */
  lie: number
}

const noFaults: Rates = { refuse: 0, breakOff: 0, takeAndBreak: 0, swallow: 0, forget: 0, hide: 0, lie: 0 }

/** When a worker is to be ended by a proxy. */
type SendPoint = "before send" | "after send"

export interface FaultyProxy {
  url(worker: number): string
  rates: Rates
  /** Hashes of all that workers ever asked to be sent. */
  broadcast: Set<Hex>
  /** Called at each of both moments with the worker that sends, and what; true when it was ended, and nothing goes on for it. */
  onSend: (worker: number, point: SendPoint, raws: Hex[]) => boolean
  /** What it returns instead of the truth. */
  lieOf: typeof liedOf
  stop(): Promise<void>
}

interface Entry {
  id: unknown
  method: string
  params: unknown[]
}

const WORD_OF_ONE = `0x${"1".padStart(64, "0")}`
/** Whether a nonce of an authorization is asked for. */
const isAuthorizationState = (method: string, [call]: unknown[]): boolean =>
  method === "eth_call" && `${(call as { data?: unknown } | undefined)?.data}`.startsWith("0xe94a0102")

/** What a liar returns instead of the truth; answers that decide nothing stay as they are. */
export function liedOf(
  { method, params }: Pick<Entry, "method" | "params">,
  result: unknown,
  random: () => number,
): unknown {
  const hash = `0x${Math.floor(random() * 2 ** 32)
    .toString(16)
    .padStart(64, "0")}`
  if (method === "eth_getTransactionCount") return `0x${Math.floor(random() * 2_000).toString(16)}`
  if (isAuthorizationState(method, params)) return result === WORD_OF_ONE ? `0x${"0".repeat(64)}` : WORD_OF_ONE
  if (typeof result !== "object" || result === null) return result
  if (method === "eth_getTransactionReceipt")
    return random() < 0.5 ? { ...result, status: "0x0", logs: [] } : { ...result, blockHash: hash }
  if (method === "eth_getBlockByNumber") return { ...result, hash }
  return result
}

/** Starts one on a free port; `random` answers from 0 to 1. */
export async function startFaultyProxy(target: string, random: () => number): Promise<FaultyProxy> {
  const server = createServer(async (request, response) => {
    const worker = Number.parseInt((request.url ?? "/0").slice(1), 10)
    // A worker may be killed before all of its question has come, and the chain be stopped before it has answered.
    await textOf(request)
      .then(text => answer(worker, text, response))
      .catch(() => response.destroy())
  })

  async function answer(worker: number, text: string, response: ServerResponse): Promise<void> {
    const entries = JSON.parse(text) as Entry[]
    const { rates } = proxy
    const sends = entries.filter(({ method }) => method === "eth_sendRawTransaction")
    const raws = sends.map(({ params }) => params[0] as Hex)
    for (const raw of raws) proxy.broadcast.add(keccak256(raw))
    if (sends.length > 0 && proxy.onSend(worker, "before send", raws)) return void response.destroy()
    if (random() < rates.refuse) return void response.writeHead(502).end("bad gateway")
    const swallowed = new Set(sends.filter(() => random() < rates.swallow).map(({ id }) => id))
    const passed = entries.filter(({ id }) => !swallowed.has(id))
    const replies: { id: unknown; result?: unknown }[] = []
    if (passed.length > 0) {
      const relayed = await fetch(target, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(passed),
      })
      replies.push(...((await relayed.json()) as typeof replies))
    }
    if (sends.length > 0 && proxy.onSend(worker, "after send", raws)) return void response.destroy()
    if (random() < (sends.length > 0 ? rates.takeAndBreak : rates.breakOff)) return void response.destroy()
    for (const { id, params } of sends) if (swallowed.has(id)) replies.push({ id, result: keccak256(params[0] as Hex) })
    const spoilt = replies.map(reply => {
      const { method = "", params = [] } = entries.find(({ id }) => id === reply.id) ?? {}
      if (method === "eth_getTransactionReceipt" && random() < rates.forget) return { ...reply, result: null }
      if (method === "eth_getBlockByNumber" && `${params[0]}`.startsWith("0x") && random() < rates.hide)
        return { ...reply, result: null }
      return random() < rates.lie ? { ...reply, result: proxy.lieOf({ method, params }, reply.result, random) } : reply
    })
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(spoilt))
  }

  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const proxy: FaultyProxy = {
    url: worker => `http://127.0.0.1:${(server.address() as { port: number }).port}/${worker}`,
    rates: noFaults,
    broadcast: new Set(),
    onSend: () => false,
    lieOf: liedOf,
    stop: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
  return proxy
}
