/**
 * A proxy in front of anvil: it counts every call and can spoil any answer, as overloaded and faulty providers do. A
 * transaction is answered when its block is mined, so that a round of payouts finds it.
 */
import { createServer } from "node:http"
import { text as textOf } from "node:stream/consumers"
import { type Hex, keccak256 } from "viem"
import { untilMined } from "./anvil.ts"
import { DROPPED, type failed } from "./node.ts"

interface Entry {
  id: unknown
  method: string
  params: unknown[]
}

interface Reply {
  id: unknown
  result?: unknown
  error?: unknown
}

const isSend = ({ method }: Entry): boolean => method === "eth_sendRawTransaction"

export interface RpcProxy {
  url: string
  /** Calls that were received, each entry of a batch counted, by method. */
  calls: Map<string, number>
  total(): number
  /** The names of all headers that came. */
  headerNames: Set<string>
  /**
   * Changes a result, or returns a promise of another; {@link DROPPED} leaves the entry out of the reply, and a value
   * made by `failed` is an error.
   */
  spoil: (method: string, params: unknown[], result: unknown) => unknown
  /**
   * Whether a signed transaction is withheld from the chain, which is then not asked; `spoil` gets its hash as the
   * result.
   */
  swallows: boolean
  /** Ends whole exchanges in another way: with a status, without ever answering, or by breaking the connection. */
  broken: number | "hang" | "reset" | undefined
  /** The only method whose exchanges are broken; undefined: all. */
  brokenFor: string | undefined
  stop(): Promise<void>
}

const honest: RpcProxy["spoil"] = (_method, _params, result) => result

/** The replies of the chain, once it has mined what it was sent. */
async function askChain(target: string, entries: Entry[]): Promise<Reply[]> {
  const answer = await fetch(target, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(entries),
  })
  if (entries.some(isSend)) await untilMined(target)
  return (await answer.json()) as Reply[]
}

/** Starts one on a free port. */
export async function startProxy(target: string): Promise<RpcProxy> {
  const server = createServer(async (request, response) => {
    // Who asks may be killed before all of the question has come.
    const text = await textOf(request).catch(() => undefined)
    if (text === undefined) return
    for (const name of Object.keys(request.headers)) proxy.headerNames.add(name)
    const asked = JSON.parse(text) as Entry | Entry[]
    const entries = [asked].flat()
    for (const { method } of entries) proxy.calls.set(method, (proxy.calls.get(method) ?? 0) + 1)
    const { spoil, brokenFor } = proxy
    const hit = brokenFor === undefined || entries.some(({ method }) => method === brokenFor)
    const broken = hit ? proxy.broken : undefined
    if (broken === "hang") return
    if (broken === "reset") return void request.socket.destroy()
    if (broken !== undefined) return void response.writeHead(broken).end("broken")
    const swallowed = proxy.swallows ? entries.filter(isSend) : []
    const passed = entries.filter(entry => !swallowed.includes(entry))
    const replies: Reply[] = swallowed.map(({ id, params }) => ({ id, result: keccak256(params[0] as Hex) }))
    if (passed.length > 0) {
      // The chain may be stopped while somebody who was killed is still being answered.
      const answered = await askChain(target, passed).catch(() => undefined)
      if (!answered) return void request.socket.destroy()
      replies.push(...answered)
    }
    const spoilt: Reply[] = []
    for (const reply of replies) {
      const entry = entries.find(({ id }) => id === reply.id)
      const result = entry && "result" in reply ? await spoil(entry.method, entry.params, reply.result) : reply.result
      const error = (result as Partial<ReturnType<typeof failed>> | null | undefined)?.scriptedError
      if (error !== undefined) spoilt.push({ id: reply.id, error: { code: -32000, message: error } })
      else if (result !== DROPPED) spoilt.push({ ...reply, ...("result" in reply ? { result } : {}) })
    }
    response.writeHead(200, { "content-type": "application/json" })
    response.end(JSON.stringify(Array.isArray(asked) ? spoilt : spoilt[0]))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const proxy: RpcProxy = {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    calls: new Map(),
    headerNames: new Set(),
    total: () => [...proxy.calls.values()].reduce((sum, n) => sum + n, 0),
    spoil: honest,
    swallows: false,
    broken: undefined,
    brokenFor: undefined,
    stop: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
  return proxy
}
