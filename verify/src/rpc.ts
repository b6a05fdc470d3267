/** A node of the chain, asked by JSON-RPC over HTTP. Each question is asked only once. */

/** A log as nodes return it. */
interface Log {
  address: string
  topics: string[]
  data: string
  blockNumber: string
  logIndex: string
}

interface TransactionReceipt {
  status: string
  blockHash: string
  blockNumber: string
  logs: Log[]
}

interface Block {
  number: string
  hash: string
  timestamp: string
}

/** The questions to a chain. Each throws if the node does not answer. */
export interface Node {
  chainId(): Promise<number>
  receipt(txHash: string): Promise<TransactionReceipt | null>
  block(which: number | "latest" | "finalized"): Promise<Block | null>
  /** The logs of one contract with these topics; null stands for any. */
  logs(address: string, topics: readonly (string | null)[], from: number, to: number): Promise<Log[]>
}

/** Blocks in one query if a node refuses more: most public nodes allow this many. */
const WINDOW = 10_000
/** A search through a chain ends after this many queries. */
const WINDOWS = 3_000

const hexOf = (n: number): string => `0x${n.toString(16)}`
/** The whole number of a hexadecimal text. */
export const numberOf = (text: string): number => Number.parseInt(text, 16)

/** A node by its address. */
export function openNode(url: string): Node {
  let id = 0
  const known = new Map<string, Promise<unknown>>()
  const call = async (method: string, params: unknown[]): Promise<unknown> => {
    const body = JSON.stringify({ jsonrpc: "2.0", id: ++id, method, params })
    const response = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body })
    const answer = (await response.json()) as { result?: unknown; error?: { message?: string } }
    if (answer.error) throw new Error(`the node says: ${answer.error.message ?? "error"}`)
    return answer.result
  }
  const ask = <T>(method: string, params: unknown[]): Promise<T> => {
    const key = JSON.stringify([method, params])
    const asked = known.get(key) ?? call(method, params)
    known.set(key, asked)
    return asked as Promise<T>
  }
  return {
    chainId: async () => numberOf(await ask<string>("eth_chainId", [])),
    receipt: txHash => ask("eth_getTransactionReceipt", [txHash]),
    block: which => ask("eth_getBlockByNumber", [typeof which === "number" ? hexOf(which) : which, false]),
    logs: async (address, topics, from, to) => {
      const part = (a: number, b: number) =>
        ask<Log[]>("eth_getLogs", [{ address, topics, fromBlock: hexOf(a), toBlock: hexOf(b) }])
      if (to - from < WINDOW) return await part(from, to)
      try {
        return await part(from, to)
      } catch {
        const found: Log[] = []
        for (let a = from, n = 0; a <= to; a += WINDOW, n++) {
          if (n === WINDOWS) throw new Error("the search would take too long: ask a node that allows longer ranges")
          found.push(...(await part(a, Math.min(to, a + WINDOW - 1))))
        }
        return found
      }
    },
  }
}
