/**
 * A scripted chain and nodes that report it over real HTTP, each with a hook to fail or to lie in any single answer.
 * For faults that a real node can't be made to show; everything else is tested on anvil.
 */
import { createServer, type Server, type ServerResponse } from "node:http"
import { brotliCompressSync, constants } from "node:zlib"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import { paperNetwork } from "./paper-network.ts"

const TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
const hex = (n: number | bigint) => `0x${n.toString(16)}`
const word = (address: string) => `0x${address.slice(2).toLowerCase().padStart(64, "0")}`

export interface ScriptedTransfer {
  token?: Address
  from: Address
  to: string
  value: bigint
}

interface Transaction {
  hash: Hash
  transfers: ScriptedTransfer[]
}

export interface ScriptedBlock {
  number: number
  hash: Hash
  time: number
  transactions: Transaction[]
}

let hashes = 0
/** A hash that no other call returns. */
export const newHash = (): Hash => `0x${(++hashes).toString(16).padStart(64, "0")}` as Hash

/** A chain of two-second blocks that is changed by hand. */
export class ScriptedChain {
  blocks: ScriptedBlock[] = []
  finalized = 0
  chainId = paperNetwork.chainId

  /** `now` is when its head was mined. */
  constructor(now: Date, length = 200) {
    const start = Math.floor(now.getTime() / 1_000) - 2 * length
    for (let number = 0; number < length; number++)
      this.blocks.push({ number, hash: newHash(), time: start + 2 * number, transactions: [] })
  }

  get head(): ScriptedBlock {
    const head = this.blocks.at(-1)
    if (!head) throw new Error("the chain has no block")
    return head
  }

  /** Adds a block with one transaction of these transfers; returns the transaction's hash and the block's number. */
  pay(transfers: ScriptedTransfer[], hash = newHash()): { hash: Hash; number: number } {
    return { hash, number: this.mine(1, [{ hash, transfers }]).number }
  }

  mine(count = 1, transactions: Transaction[] = []): ScriptedBlock {
    for (let i = 0; i < count; i++)
      this.blocks.push({ number: this.head.number + 1, hash: newHash(), time: this.head.time + 2, transactions })
    return this.head
  }

  /** Replaces the blocks from a height on with as many empty ones; returns the original blocks. */
  reorg(height: number): ScriptedBlock[] {
    const before = this.blocks
    this.blocks = before.slice(0, height)
    this.mine(before.length - height)
    return before
  }
}

export interface ScriptedNode {
  url: string
  /** How many calls it received, each entry of a batch counted. */
  calls: number
  /** The answer to a call instead of the true one; undefined is the true one. */
  hook: (method: string, params: never[], blocks: ScriptedBlock[]) => unknown
  /** Ends the HTTP exchange in another way than with an answer: a status, or "hang up". */
  broken: number | "hang up" | undefined
  /** Answers in its own way, whatever that is; undefined leaves it to `hook`. Gets the ids of the entries. */
  raw: ((response: ServerResponse, ids: number[]) => void) | undefined
  /** Whether it packs its answers, as many providers do. */
  packs: boolean
  /** The largest request it accepts; a larger one is a 413. */
  maxBytes: number
  /** Refuses requests as a whole, with one error: a list of so many entries, or 0 where it is one call and no list. */
  refuses: (listed: number) => { status: number; message: string } | undefined
  /** Bytes and number of the requests that it received. */
  bytes: number
  requests: number
  stop(): Promise<void>
}

interface Asked {
  id: number
  method: string
  params: never[]
}

/** An entry that the node leaves out of its reply. */
export const DROPPED = Symbol("dropped")
/** An entry that is an error. */
export const failed = (message: string) => ({ scriptedError: message })

/** A node that reports a chain. */
export async function startNode(chain: ScriptedChain): Promise<ScriptedNode> {
  const server: Server = createServer((request, response) => {
    let body = ""
    request.on("data", chunk => (body += chunk))
    request.on("end", () => {
      node.requests++
      node.bytes += body.length
      if (body.length > node.maxBytes) return void response.writeHead(413).end("request entity too large")
      if (node.broken === "hang up") return void request.socket.destroy()
      if (node.broken !== undefined) return void response.writeHead(node.broken).end("broken")
      const asked = JSON.parse(body) as Asked | Asked[]
      const entries = [asked].flat()
      const refused = node.refuses(Array.isArray(asked) ? asked.length : 0)
      if (refused) {
        const error = { code: -32600, message: refused.message }
        return void response.writeHead(refused.status).end(JSON.stringify({ jsonrpc: "2.0", id: null, error }))
      }
      if (node.raw)
        return node.raw(
          response,
          entries.map(({ id }) => id),
        )
      const replies = entries.flatMap(({ id, method, params }) => {
        node.calls++
        const hooked = node.hook(method, params, chain.blocks)
        const result = hooked === undefined ? answer(chain, method, params) : hooked
        if (result === DROPPED) return []
        const error = (result as { scriptedError?: string } | null)?.scriptedError
        return [
          error === undefined
            ? { jsonrpc: "2.0", id, result }
            : { jsonrpc: "2.0", id, error: { code: -32000, message: error } },
        ]
      })
      const text = JSON.stringify(Array.isArray(asked) ? replies.reverse() : replies[0])
      response.setHeader("content-type", "application/json")
      if (!node.packs) return void response.end(text)
      const fast = { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }
      response.setHeader("content-encoding", "br").end(brotliCompressSync(text, fast))
    })
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const node: ScriptedNode = {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    calls: 0,
    hook: () => undefined,
    broken: undefined,
    raw: undefined,
    packs: false,
    maxBytes: Number.POSITIVE_INFINITY,
    refuses: () => undefined,
    bytes: 0,
    requests: 0,
    stop: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
  return node
}

function answer(chain: ScriptedChain, method: string, params: never[]): unknown {
  if (method === "eth_chainId") return hex(chain.chainId)
  if (method === "eth_getBlockByNumber") return blockJson(blockAt(chain, String(params[0])))
  if (method === "eth_getLogs") return logsJson(params, chain.blocks)
  if (method === "eth_getTransactionReceipt") return receiptJson(chain, String(params[0]))
  return failed(`the method ${method} does not exist`)
}

const blockAt = (chain: ScriptedChain, tag: string): ScriptedBlock | undefined => {
  if (tag === "latest") return chain.head
  return chain.blocks[tag === "finalized" ? chain.finalized : Number.parseInt(tag, 16)]
}

export const blockJson = (block: ScriptedBlock | undefined) =>
  block ? { number: hex(block.number), hash: block.hash, timestamp: hex(block.time) } : null

/** The logs that a filter finds among blocks. */
export function logsJson(params: never[], blocks: ScriptedBlock[]) {
  const [filter] = params as unknown as [
    { address?: string; fromBlock: string; toBlock: string; topics: [string, null, string[]] },
  ]
  const wanted = new Set(filter.topics[2])
  return blocks
    .filter(
      block =>
        block.number >= Number.parseInt(filter.fromBlock, 16) && block.number <= Number.parseInt(filter.toBlock, 16),
    )
    .flatMap(logsOf)
    .filter(log => (filter.address ?? log.address) === log.address && wanted.has(log.topics[2] ?? ""))
}

const logsOf = (block: ScriptedBlock) =>
  block.transactions
    .flatMap(({ hash, transfers }) => transfers.map(transfer => ({ hash, transfer })))
    .map(({ hash, transfer }, i) => ({
      address: transfer.token ?? paperNetwork.token.address,
      topics: [TRANSFER, word(transfer.from), word(transfer.to)],
      data: `0x${transfer.value.toString(16).padStart(64, "0")}`,
      transactionHash: hash,
      blockNumber: hex(block.number),
      blockHash: block.hash,
      logIndex: hex(i),
      removed: false,
      blockTimestamp: hex(block.time),
    }))

function receiptJson(chain: ScriptedChain, hash: string) {
  const block = chain.blocks.find(each => each.transactions.some(transaction => transaction.hash === hash))
  if (!block) return null
  const logs = logsOf(block).filter(log => log.transactionHash === hash)
  const logsBloom = logs.length > 0 ? `0x${"0".repeat(511)}1` : "0x00"
  return {
    status: "0x1",
    transactionHash: hash,
    blockNumber: hex(block.number),
    blockHash: block.hash,
    logsBloom,
    logs,
  }
}
