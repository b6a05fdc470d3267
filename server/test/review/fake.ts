// A scripted node: blocks, transactions with transfers, and hooks over any answer.
import { createServer } from "node:http"
import type { Address, Hash } from "../../src/chain/hex.ts"
import type { Network } from "../../src/chain/networks.ts"
import { ensureCursor, verifyRound } from "../../src/payments/verify-payments.ts"
import { paperNetwork, startService, type TestService } from "../service.ts"

const TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
const hex = (n: number | bigint) => `0x${n.toString(16)}`
const pad = (a: string) => `0x${a.slice(2).toLowerCase().padStart(64, "0")}`
export const USDC = paperNetwork.token.address
export interface Log {
  token?: string
  from: string
  to: string
  value: bigint
}
interface Tx {
  hash: string
  logs: Log[]
  ok?: boolean
}
interface Block {
  number: number
  hash: string
  time: number
  txs: Tx[]
}

let salt = 0
const newHash = () => `0x${(++salt).toString(16).padStart(64, "0")}`
export const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "a")}`

export class Fake {
  blocks: Block[] = []
  finalized = 0
  timestamps = true
  calls = 0
  hook: (method: string, params: any[], i: number) => unknown = () => undefined
  async start() {
    const t0 = Math.floor(Date.now() / 1000) - 2 * 200
    for (let i = 0; i < 200; i++) this.blocks.push({ number: i, hash: newHash(), time: t0 + 2 * i, txs: [] })
    const server = createServer((req, res) => {
      let text = ""
      req.on("data", d => (text += d))
      req.on("end", async () => {
        const batch = JSON.parse(text)
        const out = []
        for (let i = 0; i < batch.length; i++) {
          this.calls++
          let result = await this.hook(batch[i].method, batch[i].params, i)
          if (result === undefined) result = this.answer(batch[i].method, batch[i].params)
          if (result !== DROP)
            out.push(
              result && (result as any).__error
                ? { jsonrpc: "2.0", id: batch[i].id, error: { message: (result as any).__error } }
                : { jsonrpc: "2.0", id: batch[i].id, result },
            )
        }
        res.setHeader("content-type", "application/json")
        res.end(JSON.stringify(out))
      })
    })
    await new Promise<void>(r => server.listen(0, "127.0.0.1", () => r()))
    this.url = `http://127.0.0.1:${(server.address() as any).port}`
    this.stop = () =>
      new Promise<void>(r => {
        server.closeAllConnections()
        server.close(() => r())
      })
  }
  url = ""
  stop: () => Promise<void> = async () => {}
  get head() {
    return this.blocks.at(-1)!
  }
  mine(...txs: Tx[]) {
    this.blocks.push({ number: this.head.number + 1, hash: newHash(), time: this.head.time + 2, txs })
    return this.head
  }
  mineMany(n: number) {
    for (let i = 0; i < n; i++) this.mine()
  }
  /** Replaces the blocks from `number` on by as many empty ones (one more). */
  reorg(number: number) {
    const old = this.blocks
    const n = this.head.number
    this.blocks = this.blocks.slice(0, number)
    while (this.head.number < n) this.mine()
    return old
  }
  logsOf(block: Block) {
    let i = 0
    return block.txs.flatMap(tx =>
      (tx.ok === false ? [] : tx.logs).map(log => ({
        address: log.token ?? USDC,
        topics: [TOPIC, pad(log.from), pad(log.to)],
        data: `0x${log.value.toString(16).padStart(64, "0")}`,
        transactionHash: tx.hash,
        blockNumber: hex(block.number),
        blockHash: block.hash,
        logIndex: hex(i++),
        removed: false,
        ...(this.timestamps ? { blockTimestamp: hex(block.time) } : {}),
      })),
    )
  }
  blockJson(b: Block | undefined) {
    return b ? { number: hex(b.number), hash: b.hash, timestamp: hex(b.time) } : null
  }
  logs(params: any[], blocks = this.blocks) {
    const [f] = params
    const tos = new Set(f.topics[2])
    return blocks
      .filter(b => b.number >= Number(f.fromBlock))
      .flatMap(b => this.logsOf(b))
      .filter(l => l.address === f.address && tos.has(l.topics[2]))
  }
  answer(method: string, params: any[]): unknown {
    if (method === "eth_getBlockByNumber") {
      const tag = params[0]
      return this.blockJson(
        tag === "latest" ? this.head : tag === "finalized" ? this.blocks[this.finalized] : this.blocks[Number(tag)],
      )
    }
    if (method === "eth_getLogs") return this.logs(params)
    if (method === "eth_getTransactionReceipt") {
      for (const b of this.blocks)
        for (const tx of b.txs)
          if (tx.hash === params[0])
            return {
              status: tx.ok === false ? "0x0" : "0x1",
              transactionHash: tx.hash,
              blockNumber: hex(b.number),
              blockHash: b.hash,
              logs: this.logsOf(b).filter(l => l.transactionHash === tx.hash),
            }
      return null
    }
    throw new Error(method)
  }
}
export const DROP = Symbol("drop") as unknown
export const err = (m: string) => ({ __error: m })
export const A = "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  B = "0xbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
export const usd = (n: number) => BigInt(Math.round(n * 1e6))

export async function world() {
  const fake = new Fake()
  await fake.start()
  const service = await startService()
  const network: Network = { ...paperNetwork, rpcUrls: [fake.url] }
  ;(service.ctx.chain as any).networks.splice(0, 1, network)
  const w = {
    fake,
    service,
    network,
    async reset() {
      await service.empty()
      await service.merchant("shop")
      fake.hook = () => undefined
      await ensureCursor(service.ctx, network)
    },
    async paywall(fields: any = {}) {
      const made = await service.call(
        "POST",
        "/api/console/paywalls",
        { name: "Film", price: "5.00", ...fields },
        { as: "shop" },
      )
      if (made.status !== 201) throw new Error(JSON.stringify(made.body))
      return {
        id: made.body.id as string,
        payTo: (await service.call("GET", `/api/paywalls/${made.body.id}`)).body.payTo.toLowerCase() as string,
      }
    },
    submit: (id: string, txHash: string, address: string) =>
      service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address }),
    status: async (id: string, txHash: string, address: string) =>
      (await service.call("GET", `/api/paywalls/${id}/payments/${txHash}?address=${address}`)).body,
    access: async (id: string, address: string) =>
      (await service.call("GET", `/api/paywalls/${id}/verify?address=${address}`)).body,
    async round() {
      await service.ctx.db
        .updateTable("cursors")
        .set({ run_at: new Date(0) })
        .execute()
      await verifyRound(service.ctx, network)
    },
    rows: (t: any) => service.ctx.db.selectFrom(t).selectAll().execute() as Promise<any[]>,
    async stop() {
      await service.stop()
      await fake.stop()
    },
  }
  return w
}
