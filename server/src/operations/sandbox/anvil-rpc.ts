/** Anvil's JSON-RPC. A call that fails throws anvil's own message. */

/** A block as anvil reports it, with the hashes of its transactions. */
export type Block = { number: string; hash: string; timestamp: string; transactions: string[] }
type Answer = { result?: unknown; error?: { message: string } }
export type AnvilRpc = ReturnType<typeof anvilRpc>

const RPC_MS = 60_000

/** Creates a client for the anvil at `url`. Each call rejects after a minute, or with anvil's message. */
export function anvilRpc(url: string) {
  async function post(body: object): Promise<unknown> {
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(RPC_MS),
    })
    return response.json()
  }
  const request = (method: string, params: unknown[]) => ({ jsonrpc: "2.0", id: 1, method, params })
  const result = ({ result, error }: Answer) => {
    if (error) throw new Error(`anvil: ${error.message}`)
    return result
  }

  async function call(method: string, params: unknown[] = []): Promise<unknown> {
    return result((await post(request(method, params))) as Answer)
  }
  return {
    call,
    head: async () => (await call("eth_getBlockByNumber", ["latest", false])) as Block,
    /** The blocks from one number to another, both included. */
    async blocks(from: number, to: number): Promise<Block[]> {
      const numbers = Array.from({ length: to - from + 1 }, (_, i) => quantity(from + i))
      const answers = await post(numbers.map(number => request("eth_getBlockByNumber", [number, false])))
      return (answers as Answer[]).map(answer => result(answer) as Block)
    },
  }
}

/** Formats a number for JSON-RPC: 0x and hexadecimal digits. */
export function quantity(n: number): string {
  return `0x${n.toString(16)}`
}
