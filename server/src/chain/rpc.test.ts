import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
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
    const failed = { ok: false, error: "the answer is larger than 2,097,152 bytes" }
    expect(await batch({ url, network: "base" }, calls)).toEqual([failed, failed])
    expect(sent).toBeLessThan(16 * 2 ** 20)
  } finally {
    server.closeAllConnections()
    server.close()
  }
})

it("says in printable text why a call failed, and gives the data of a revert", async () => {
  const error = { code: 3, message: "execution reverted: a\u0000\u001b[2Jb", data: "0x5cd5d233" }
  const server = createServer((_request, response) => response.end(JSON.stringify([{ jsonrpc: "2.0", id: 0, error }])))
  await once(server.listen(0, "127.0.0.1"), "listening")
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  try {
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
  } finally {
    server.closeAllConnections()
    server.close()
  }
})
