import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { expect, it } from "vitest"
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
