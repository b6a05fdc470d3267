/**
 * A scripted chain and its nodes in a thread of their own, so that a test can measure what the service does with their
 * answers and not what it takes to make them. One node can answer floods, in any of {@link shapes}.
 */
import type { ServerResponse } from "node:http"
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads"
import { brotliCompressSync, constants } from "node:zlib"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import { logsJson, newHash, ScriptedChain, type ScriptedNode, type ScriptedTransfer, startNode } from "./node.ts"

/** What one endpoint can answer. */
export const shapes = [
  "small values",
  "spaces",
  "nesting",
  "made-up logs",
  "made-up logs of one transaction",
  "repeated logs",
  "odd numbers",
  "odd objects",
  "large blocks",
] as const
type Shape = (typeof shapes)[number]

type Order =
  | { pay: ScriptedTransfer[] }
  | { dust: { to: string; count: number; senders: number } }
  | { mine: number }
  | { lie: Shape | undefined }
  | { pack: true }
  | { requests: true }
  | { stop: true }

export interface Floods {
  urls: string[]
  /** Mines a transaction of these transfers; returns its hash. */
  pay(transfers: ScriptedTransfer[]): Promise<Hash>
  /** Mines many transfers of the smallest amount to one address, 1,000 in a transaction and four of those in a block. */
  dust(to: string, count: number, senders?: number): Promise<void>
  mine(count: number): Promise<void>
  /** Makes the last node answer this to whatever it can, or the truth. */
  lie(shape: Shape | undefined): Promise<void>
  /** Makes all nodes pack their answers. */
  pack(): Promise<void>
  /** How many requests the last node has received. */
  requests(): Promise<number>
  stop(): Promise<void>
}

/** Starts the thread with so many nodes. */
export async function startFloods(now: Date, count: number): Promise<Floods> {
  const worker = new Worker(new URL(import.meta.url), { workerData: { now, count } })
  let id = 0
  const next = <T>(order?: Order): Promise<T> =>
    new Promise((resolve, reject) => {
      const own = order ? ++id : 0
      const on = ({ id, answer }: { id: number; answer: T }) => {
        if (id !== own) return
        worker.off("message", on)
        resolve(answer)
      }
      worker.on("message", on).once("error", reject)
      if (order) worker.postMessage({ id: own, order })
    })
  const urls = await next<string[]>()
  return {
    urls,
    pay: pay => next({ pay }),
    dust: (to, count, senders = 1) => next({ dust: { to, count, senders } }),
    mine: mine => next({ mine }),
    lie: lie => next({ lie }),
    pack: () => next({ pack: true }),
    requests: () => next({ requests: true }),
    stop: async () => {
      await next({ stop: true })
      await worker.terminate()
    },
  }
}

/** Some 13 MB. */
const MADE_UP = 20_000
const MB = 2 ** 20
const word = (n: number) => `0x${n.toString(16).padStart(64, "0")}`

function lieOf(node: ScriptedNode, shape: Shape | undefined): void {
  const packed = (text: string) => brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })
  const always = (text: string) => {
    const body = packed(text)
    return (response: ServerResponse) =>
      void response.writeHead(200, { "content-type": "application/json", "content-encoding": "br" }).end(body)
  }
  node.raw = undefined
  node.hook = () => undefined
  if (shape === "small values") node.raw = always(`[{"id":1,"result":[${"{},".repeat(8 * MB)}{}]}]`)
  if (shape === "spaces") node.raw = always(`[${" ".repeat(32 * MB)}]`)
  if (shape === "nesting") node.raw = always("[".repeat(4 * MB))
  if (shape === "odd objects") {
    const odd = { toString: 1, valueOf: 1 }
    node.raw = (response, ids) =>
      void response.end(JSON.stringify(ids.map(id => ({ id, error: { message: odd, data: odd }, result: odd }))))
  }
  if (shape === "large blocks")
    node.hook = (method, params, blocks) => {
      const block =
        method === "eth_getBlockByNumber" ? blocks.at(Number.parseInt(String(params[0]), 16) || -1) : undefined
      if (!block) return undefined
      const { number, hash, time } = block
      const transactions = Array.from({ length: 20_000 }, (_, i) => word(i))
      return { number: word(number).replace(/^0x0*/, "0x"), hash, timestamp: `0x${time.toString(16)}`, transactions }
    }
  node.hook = logLies(shape) ?? node.hook
}

function logLies(shape: Shape | undefined): ScriptedNode["hook"] | undefined {
  const made = (params: never[], blocks: ScriptedChain["blocks"], hashOf: (i: number) => string) => {
    const [filter] = params as unknown as [{ address: string; topics: [string, null, string[]]; toBlock: string }]
    const block = blocks[Number.parseInt(filter.toBlock, 16)] ?? blocks.at(-1)
    return Array.from({ length: MADE_UP }, (_, i) => ({
      address: filter.address,
      topics: [filter.topics[0], word(7), filter.topics[2][0]],
      data: word(1_000_000 + i),
      transactionHash: hashOf(i),
      blockNumber: `0x${block?.number.toString(16)}`,
      blockHash: block?.hash,
      logIndex: `0x${i.toString(16)}`,
    }))
  }
  const lies: Partial<Record<Shape, (params: never[], blocks: ScriptedChain["blocks"]) => unknown[]>> = {
    "made-up logs": (params, blocks) => made(params, blocks, i => word(i + 2 ** 40)),
    "made-up logs of one transaction": (params, blocks) => made(params, blocks, () => word(2 ** 40)),
    "repeated logs": (params, blocks) =>
      logsJson(params, blocks).flatMap(log => Array.from({ length: 8_000 }, () => log)),
    "odd numbers": (params, blocks) =>
      logsJson(params, blocks).map(log => ({
        ...log,
        logIndex: `0x${"f".repeat(60)}`,
        blockTimestamp: `0x${"f".repeat(60)}`,
      })),
  }
  const lie = shape && lies[shape]
  return lie && ((method, params, blocks) => (method === "eth_getLogs" ? lie(params, blocks) : undefined))
}

async function serve(): Promise<void> {
  const { now, count } = workerData as { now: Date; count: number }
  const chain = new ScriptedChain(now)
  const nodes = await Promise.all(Array.from({ length: count }, () => startNode(chain)))
  const last = nodes.at(-1) as ScriptedNode
  const obey = async (order: Order): Promise<unknown> => {
    if ("pay" in order) return chain.pay(order.pay).hash
    if ("mine" in order) return void chain.mine(order.mine)
    if ("lie" in order) return lieOf(last, order.lie)
    if ("pack" in order) {
      for (const node of nodes) node.packs = true
      return undefined
    }
    if ("requests" in order) return last.requests
    if ("stop" in order) return void (await Promise.all(nodes.map(node => node.stop())))
    const { to, count, senders } = order.dust
    const from = (i: number) => `0x${(1 + (i % senders)).toString(16).padStart(40, "d")}` as Address
    for (let at = 0; at < count; at += 4_000) {
      const all = Array.from({ length: Math.min(4_000, count - at) }, (_, i) => ({ from: from(at + i), to, value: 1n }))
      const transactions = Array.from({ length: Math.ceil(all.length / 1_000) }, (_, i) => ({
        hash: newHash(),
        transfers: all.slice(i * 1_000, (i + 1) * 1_000),
      }))
      chain.mine(1, transactions)
    }
  }
  parentPort?.on("message", async ({ id, order }: { id: number; order: Order }) =>
    parentPort?.postMessage({ id, answer: await obey(order) }),
  )
  parentPort?.postMessage({ id: 0, answer: nodes.map(node => node.url) })
}

if (!isMainThread && workerData?.count) await serve()
