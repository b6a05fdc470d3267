import { once } from "node:events"
import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { json } from "node:stream/consumers"
import { brotliCompressSync, gzipSync } from "node:zlib"
import { expect, it } from "vitest"
import { registry } from "../metrics.ts"
import { withRevertName } from "./revert-name.ts"
import { batch } from "./rpc.ts"

it("an endless answer is not a result, and reading it stops", async () => {
  let sent = 0
  const server = createServer((_request, response) => {
    const chunk = Buffer.alloc(64 * 1024, " ")
    const more = () => {
      while (!response.destroyed) {
        sent += chunk.length
        if (!response.write(chunk)) return void response.once("drain", more)
      }
    }
    more()
  })
  await once(server.listen(0, "127.0.0.1"), "listening")
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  try {
    const calls = [
      { method: "eth_call", params: [] },
      { method: "eth_blockNumber", params: [] },
    ]
    const failed = { ok: false, error: "the answer is larger than 1,048,576 bytes", isTooLarge: true }
    expect(await batch({ url, network: "base" }, calls)).toEqual([failed, failed])
    expect(sent).toBeLessThan(16 * 2 ** 20)
  } finally {
    server.closeAllConnections()
    server.close()
  }
})

it("says in printable text why a call failed, and gives the data of a revert", async () => {
  const error = { code: 3, message: "execution reverted: a\u0000\u001b[2Jb", data: "0x5cd5d233" }
  const answer = (response: ServerResponse, id: number) => response.end(JSON.stringify([{ jsonrpc: "2.0", id, error }]))
  await answering(answer, async url => {
    registry.resetMetrics()
    const [result] = await batch({ url, network: "base", position: 2 }, [{ method: "eth_call", params: [] }])
    const counted = async (name: string) =>
      ((await registry.getSingleMetric(name)?.get())?.values ?? []).map(({ labels, value }) => ({ ...labels, value }))
    const from = { network: "base", endpoint: "2" }
    expect(await counted("sluice_rpc_calls_total")).toEqual([
      { ...from, method: "eth_call", result: "error", value: 1 },
    ])
    expect(await counted("sluice_rpc_seconds")).toContainEqual({ ...from, value: 1 })
    expect(result).toEqual({ ok: false, error: "execution reverted: a [2Jb", data: "0x5cd5d233" })
    expect(withRevertName("execution reverted", "0x5cd5d233")).toBe("BadSignature(): execution reverted")
    expect(withRevertName(`custom error 0xf80dbaea: ${"0".repeat(64)}`, undefined)).toContain("custom error 0xf80dbaea")
  })
})

it("takes no answer for another request's than that it was given to", async () => {
  const ids: number[] = []
  const late = (response: ServerResponse, id: number) => {
    ids.push(id)
    response.end(JSON.stringify([{ jsonrpc: "2.0", id: ids[0], result: "0x1" }]))
  }
  await answering(late, async url => {
    expect(await batch({ url, network: "base" }, calls)).toEqual([{ ok: true, value: "0x1" }])
    expect(await batch({ url, network: "base" }, calls)).toEqual([{ ok: false, error: "no reply" }])
  })
})

it("pairs answers whose ids came back as text", async () => {
  const answer = (response: ServerResponse, id: number) =>
    response.end(JSON.stringify([{ jsonrpc: "2.0", id: `${id}`, result: "0x1" }]))
  await answering(answer, async url =>
    expect(await batch({ url, network: "base" }, calls)).toEqual([{ ok: true, value: "0x1" }]),
  )
})

/** Runs a server that answers each request by `answer`, with the `id` of its first call; `use` gets its address. */
async function answering(answer: (response: ServerResponse, id: number) => void, use: (url: string) => Promise<void>) {
  const server = createServer(async (request, response) =>
    answer(response, ((await json(request)) as { id: number }[])[0]?.id ?? -1),
  )
  await once(server.listen(0, "127.0.0.1"), "listening")
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}/path?key=1`)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

const calls = [{ method: "eth_blockNumber", params: [] }]
const words = async (asked: Promise<unknown>): Promise<string> =>
  await asked.then(
    value => `answered ${JSON.stringify(value)}`,
    error => (error as Error).message,
  )

it.each([
  ["gzip", gzipSync],
  ["br", brotliCompressSync],
] as const)("reads an answer that is packed by %s, as far as it is not too large unpacked", async (encoding, pack) => {
  let padding = ""
  const answer = (response: ServerResponse, id: number) => {
    const body = pack(JSON.stringify([{ jsonrpc: "2.0", id, result: "0x1", padding }]))
    response.setHeader("content-encoding", encoding).end(body)
  }
  await answering(answer, async url => {
    expect(await batch({ url, network: "base" }, calls)).toEqual([{ ok: true, value: "0x1" }])
    padding = " ".repeat(2 * 2 ** 20)
    expect(await batch({ url, network: "base" }, calls)).toEqual([
      { ok: false, error: "the answer is larger than 1,048,576 bytes", isTooLarge: true },
    ])
  })
})

it("says which status was answered, that no answer came in time, and that nobody could be reached; follows nobody elsewhere", async () => {
  const seen: string[] = []
  const away = (response: ServerResponse) => {
    const { method, url, headers } = response.req
    seen.push(`${method} ${url} ${headers["user-agent"]} ${headers.accept}`)
    response.writeHead(307, { location: "/elsewhere" }).end()
  }
  await answering(away, async url => expect(await words(batch({ url, network: "base" }, calls))).toBe("HTTP 307"))
  expect(seen).toEqual(["POST /path?key=1 sluice application/json"])
  const silent = (response: ServerResponse) => response.write("[")
  await answering(silent, async url => {
    expect(await words(batch({ url, network: "base", timeoutMs: 50 }, calls))).toBe("no answer in time")
    const stopped = new AbortController()
    const asked = batch({ url, network: "base" }, calls, stopped.signal)
    stopped.abort()
    expect(await words(asked)).toBe("no usable answer")
    expect(await words(batch({ url, network: "base" }, calls, stopped.signal))).toBe("no usable answer")
  })
  const cut = (response: ServerResponse) => response.destroy()
  await answering(cut, async url =>
    expect(await words(batch({ url, network: "base" }, calls))).toBe("no usable answer"),
  )
})
