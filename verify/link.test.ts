// What the server of a link can make the command do: read a bounded answer in a bounded time, from that server alone.
import { execFile } from "node:child_process"
import { createServer, type RequestListener } from "node:http"
import type { AddressInfo } from "node:net"
import { afterEach, expect, it } from "vitest"
import { nodeFirst } from "../server/test/packages.ts"
import { fetchLinked } from "./src/link.ts"

const stops: (() => void)[] = []
afterEach(() => {
  for (const stop of stops.splice(0)) stop()
})

async function serve(host: string, answer: RequestListener) {
  const asked: string[] = []
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`)
    answer(request, response)
  })
  await new Promise<void>(resolve => server.listen(0, host, resolve))
  stops.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://${host}:${(server.address() as AddressInfo).port}`, asked }
}

const cli = new URL("src/cli.ts", import.meta.url).pathname
const receipt = `/r/x#k=${"A".repeat(43)}&root=0x${"11".repeat(32)}&o=0&l=1`
const verified = async (link: string): Promise<{ code: number | null; text: string }> =>
  await new Promise(resolve => {
    const child = execFile(process.execPath, [cli, link], { env: nodeFirst() }, (_, stdout, stderr) =>
      resolve({ code: child.exitCode, text: stdout + stderr }),
    )
  })

it.each([301, 302, 303, 307, 308])("a link's server can't send the command elsewhere with %i", async status => {
  const inside = await serve("127.0.0.2", (_, response) => response.end("x"))
  const server = await serve("127.0.0.1", (_, response) =>
    response.writeHead(status, { location: `${inside.url}/metadata` }).end(),
  )
  const { code, text } = await verified(`${server.url}${receipt}`)
  expect(text).toContain(`answers ${status}, and no redirect is followed`)
  expect(code).toBe(1)
  expect(server.asked).toEqual([`GET /receipts/0x${"11".repeat(32)}`])
  expect(inside.asked).toEqual([])
})

it("a link's server can't keep the command running with a refusal that has no end", async () => {
  const { url } = await serve("127.0.0.1", (_, response) => response.writeHead(404).write("x"))
  expect(await verified(`${url}${receipt}`)).toMatchObject({ code: 1, text: expect.stringContaining("answers 404.") })
})

it.each<[string, RequestListener]>([
  ["never answers", () => {}],
  ["never ends its answer", (_, response) => response.writeHead(200).write("x")],
])("a link's server that %s is not waited for", async (_, answer) => {
  const { url, asked } = await serve("127.0.0.1", answer)
  await expect(fetchLinked(url, 500)).rejects.toThrow("does not answer in full within 0.5 seconds")
  expect(asked).toEqual(["GET /"])
})

it("an answer without an end is read up to a bound", async () => {
  const { url } = await serve("127.0.0.1", (_, response) => {
    const part = "a".repeat(65_536)
    const more = () => {
      while (response.write(part)) {}
    }
    response.on("drain", more)
    more()
  })
  await expect(fetchLinked(url)).rejects.toThrow("more than the 16777216 bytes")
})
