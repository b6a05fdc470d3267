/** A load balancer as an operator's: it asks `/readyz` of each process, and sends requests only to those that are ready. */
import { request as ask, createServer } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"

const PROBE_MS = 100
/** As the chart's probe. */
const TIMEOUT_MS = 3_000

export interface Balancer {
  url: string
  /** The processes that get requests now. */
  ready(): string[]
  stop(): Promise<void>
}

/** Starts one on a free port, in front of processes by their addresses. One failed probe takes a process away. */
export async function startBalancer(targets: readonly string[]): Promise<Balancer> {
  const stopping = new AbortController()
  const ready = new Set<string>()
  const probe = async (target: string) => {
    while (!stopping.signal.aborted) {
      const signal = AbortSignal.timeout(TIMEOUT_MS)
      const answer = await fetch(`${target}/readyz`, { signal }).catch(() => undefined)
      await answer?.body?.cancel()
      if (answer?.status === 200) ready.add(target)
      else ready.delete(target)
      await sleep(PROBE_MS, undefined, { signal: stopping.signal }).catch(() => undefined)
    }
  }
  for (const target of targets) void probe(target)
  let turn = 0
  const server = createServer((request, response) => {
    const target = [...ready][turn++ % Math.max(1, ready.size)]
    if (target === undefined) return void response.writeHead(503).end("no process is ready")
    const { method, headers } = request
    const passed = ask(`${target}${request.url}`, { method, headers }, answer => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    passed.on("error", () => response.writeHead(502).end("the process does not answer"))
    request.pipe(passed)
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    ready: () => [...ready],
    stop: async () => {
      stopping.abort()
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}
