// What an indexer of 0G can make the command do on its user's network: ask public nodes for a bounded answer, and nothing else.
import { randomBytes } from "node:crypto"
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http"
import { type AddressInfo, createServer as overTcp } from "node:net"
import { afterEach, describe, expect, it } from "vitest"
import { segmentOf } from "../server/src/ledger/receipts/zerog/segments.ts"
import { keccak256 } from "./src/keccak.ts"
import { rootOf, treeOf } from "./src/merkle.ts"
import { fetchStored, isInside } from "./src/storage.ts"

/** Another address of loopback, which stands for a public one. */
const PUBLIC = "127.0.0.9"
const isPublic = (address: string): boolean => address === PUBLIC
const rules = { isPublic, isInside: (address: string): boolean => address !== PUBLIC }

const stops: (() => void)[] = []
afterEach(() => {
  for (const stop of stops.splice(0)) stop()
})

/** A server at this address; returns its port and the method of each call that it got. */
async function serve(host: string, answer: (method: string, response: ServerResponse, params: unknown[]) => void) {
  const asked: string[] = []
  const listener: RequestListener = (request, response) => {
    void textOf(request).then(text => {
      const { method, params } = JSON.parse(text || '{"method":"none"}')
      asked.push(method)
      answer(method, response, params)
    })
  }
  const server = createServer(listener)
  await new Promise<void>(resolve => server.listen(0, host, resolve))
  stops.push(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { url: `http://${host}:${port}`, port, asked }
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = ""
  for await (const part of request) text += part
  return text
}

const json = (response: ServerResponse, result: unknown) =>
  response.end(JSON.stringify({ jsonrpc: "2.0", id: 1, result }))
const indexerOf = async (host: string, urls: string[]) =>
  await serve(host, (_, response) =>
    json(
      response,
      urls.map(url => ({ url, config: { shardId: 0, numShard: 1 } })),
    ),
  )

const file = randomBytes(1_024 * 256 + 700)
const tree = treeOf(file, keccak256)
const root = rootOf(tree)
/** A node that has the file. */
const nodeAt = async (host: string) =>
  await serve(host, (method, response, [, index]) =>
    json(
      response,
      method === "zgs_getFileInfo"
        ? { tx: { seq: 7, startEntryIndex: 0, size: file.length }, finalized: true }
        : segmentOf(file, tree, index as number),
    ),
  )

describe("an indexer at a public address", () => {
  it("has its public nodes asked, and what they give is taken", async () => {
    const node = await nodeAt(PUBLIC)
    const indexer = await indexerOf(PUBLIC, [node.url])
    expect(await fetchStored(indexer.url, root, rules)).toEqual(new Uint8Array(file))
  })

  it("can't have the user's own network asked, however it names an address there", async () => {
    const inside = await nodeAt("127.0.0.1")
    const { port } = inside
    const hosts = ["127.0.0.1", "localhost", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "u:p@127.0.0.1"]
    const { url } = await indexerOf(PUBLIC, [...hosts.map(host => `http://${host}:${port}/x`), "file:///etc/passwd"])
    await expect(fetchStored(url, root, rules)).rejects.toThrow("It names 7 at addresses that are not public")
    expect(inside.asked).toEqual([])
  })

  it("can't do so by a redirect, its own or a node's", async () => {
    const inside = await nodeAt("127.0.0.1")
    const redirect = (_: string, response: ServerResponse) => response.writeHead(307, { location: inside.url }).end()
    const node = await serve(PUBLIC, redirect)
    const { url } = await indexerOf(PUBLIC, [node.url])
    await expect(fetchStored(url, root, rules)).rejects.toThrow("None of 0G's nodes")
    expect(node.asked).toEqual(["zgs_getFileInfo"])
    await expect(fetchStored(node.url, root, rules)).rejects.toThrow("answers 307, and no redirect is followed")
    expect(inside.asked).toEqual([])
  })

  it("can't do so by an answer that ends the connection before it is read", async () => {
    const inside = await nodeAt("127.0.0.1")
    const body = JSON.stringify({ result: [{ url: inside.url, config: { shardId: 0, numShard: 1 } }] })
    const server = overTcp(socket => {
      socket.on("error", () => {})
      // The byte after the body is no HTTP: Node destroys the socket, which then has no address.
      socket.once("data", () => socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}x`))
    })
    await new Promise<void>(resolve => server.listen(0, PUBLIC, resolve))
    stops.push(() => server.close())
    const url = `http://${PUBLIC}:${(server.address() as AddressInfo).port}`
    await expect(fetchStored(url, root, rules)).rejects.toThrow("It names 1 at addresses that are not public")
    expect(inside.asked).toEqual([])
  })

  it("and a node are read up to a bound, and no further", async () => {
    let taken = 0
    const endless = (_: string, response: ServerResponse) => {
      const part = "a".repeat(65_536)
      const more = () => {
        do taken += part.length
        while (response.write(part))
      }
      response.on("drain", more).write('{"result":"')
      more()
    }
    const endlessOne = await serve(PUBLIC, endless)
    await expect(fetchStored(endlessOne.url, root, rules)).rejects.toThrow("more than 1048576 bytes")
    const { url } = await indexerOf(PUBLIC, [endlessOne.url])
    await expect(fetchStored(url, root, rules)).rejects.toThrow("None of 0G's nodes")
    expect(endlessOne.asked).toHaveLength(2)
    // Twice the bound, and what the buffers of the connections take.
    expect(taken).toBeLessThan(64 * 1_048_576)
  })
})

it("an indexer on the user's own network may name nodes there", async () => {
  const node = await nodeAt("127.0.0.1")
  const indexer = await indexerOf("127.0.0.1", [node.url])
  expect(await fetchStored(indexer.url, root)).toEqual(new Uint8Array(file))
})

it.each([
  ["127.0.0.1", true],
  ["192.168.1.7", true],
  ["::1", true],
  ["fd00::7", true],
  ["fe80::1%eth0", true],
  ["::ffff:10.0.0.1", true],
  ["8.8.8.8", false],
  ["2606:4700::1111", false],
  // A public host by a translation: IPv4 in IPv6, NAT64 and 6to4.
  ["::ffff:8.8.8.8", false],
  ["64:ff9b::808:808", false],
  ["2002:808:808::1", false],
  ["", false],
])("an indexer at %s is on the user's own network: %s", (address, expected) => {
  expect(isInside(address)).toBe(expected)
})
