// Addresses that webhooks must never reach: refused at registration and at delivery, and never connected to.
import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { createServer as createTlsServer } from "node:https"
import { type AddressInfo, createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type NameServer, startNameServer } from "../../../test/dns.ts"
import { startReceiver } from "../../../test/receiver.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { readSettings } from "../../platform/config/read-settings.ts"
import { guardedConnector, openResolver } from "../../platform/net/connector.ts"
import { addressRule, isPublicAddress } from "../../platform/net/public-address.ts"
import { openSender, type Sender } from "./send.ts"

const { webhooks } = readSettings({})
const closed = { ...webhooks, allowCidrs: [], timeoutMs: 20_000, probeTimeoutMs: 20_000 }

/** Listens wherever a forbidden address of this machine points, on one port, and counts connections. */
const listeners: Server[] = []
let port: number
let connections = 0
let names: NameServer
let live: TestService
const loopbacks = ["127.0.0.1", "127.0.0.2", "::1"]

beforeAll(async () => {
  for (const host of loopbacks) {
    const server = createServer(socket => {
      connections++
      socket.destroy()
    }).listen({ host, port: port ?? 0, exclusive: true })
    await once(server, "listening")
    port = (server.address() as AddressInfo).port
    listeners.push(server)
  }
  names = await startNameServer()
  live = await startService({ settings: { mode: "live", signup: "open", webhooks: closed } })
  await live.merchant("shop")
})
afterAll(async () => {
  await live.stop()
  await names.stop()
  for (const server of listeners) server.close()
})

const hosts = [
  "127.0.0.1",
  "127.0.0.2",
  "127.1",
  "2130706433",
  "0x7f000001",
  "0x7f.0.0.1",
  "017700000001",
  "0177.0.0.1",
  "127.0.0.1.",
  "0.0.0.0",
  "0",
  "10.0.0.1",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.1.1",
  "169.254.169.254",
  "100.64.0.1",
  "100.100.100.200",
  "192.0.0.192",
  "198.18.0.1",
  "224.0.0.1",
  "255.255.255.255",
  "240.0.0.1",
  "[::1]",
  "[::]",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "[::ffff:0:127.0.0.1]",
  "[::127.0.0.1]",
  "[::7f00:1]",
  "[64:ff9b::127.0.0.1]",
  "[64:ff9b::a9fe:a9fe]",
  "[64:ff9b:1::7f00:1]",
  "[2002:7f00:1::]",
  "[2002:a9fe:a9fe::]",
  "[2001:0:7f00:1::]",
  "[2001:db8::1]",
  "[fe80::1]",
  "[fec0::1]",
  "[fc00::1]",
  "[fd00:ec2::254]",
  "[ff02::1]",
  "[100::1]",
  "[3fff::1]",
  "[5f00::1]",
  "①②⑦.0.0.1",
]

describe("in live mode", () => {
  it.each(hosts)("https://%s is refused at registration and at delivery, and not connected to", async host => {
    const url = `https://${host}:${port}/`
    const before = connections
    const { status, body } = await live.call("POST", "/api/console/webhooks", { url, events: ["*"] }, { as: "shop" })
    expect(status, JSON.stringify(body)).toBe(400)
    expect(body.details[0]).toMatchObject({
      path: "url",
      message: expect.stringMatching(/points to .* not (a )?public/),
    })
    expect(await live.ctx.db.selectFrom("webhooks").selectAll().execute()).toEqual([])
    const sender = openSender(closed)
    for (const scheme of ["http", "https"]) {
      const message = {
        url: `${scheme}://${host}:${port}/`,
        secrets: ["whsec_"],
        eventId: "e",
        idempotencyKey: "d",
        body: "{}",
      }
      const { status, error } = await sender.send(message, { timeoutMs: 20_000 })
      expect(status).toBeNull()
      expect(error).toMatch(/^it points to .* is not a public address/)
    }
    await sender.close()
    expect(connections).toBe(before)
  })

  it("a name of this machine is refused because of its address", async () => {
    for (const host of ["localhost", "LOCALHOST", "a.localhost"]) {
      const url = `https://${host}:${port}/`
      const { status, body } = await live.call("POST", "/api/console/webhooks", { url, events: ["*"] }, { as: "shop" })
      expect(status).toBe(422)
      expect(body).toMatchObject({
        error: "URL_UNREACHABLE",
        message: expect.stringMatching(/points to .* not (a )?public/),
      })
    }
    expect(connections).toBe(0)
  })

  it("http is refused, and an allowed range does not allow http", async () => {
    const { status, body } = await live.call(
      "POST",
      "/api/console/webhooks",
      { url: "http://8.8.8.8/", events: ["*"] },
      { as: "shop" },
    )
    expect([status, body.details[0].path]).toEqual([400, "url"])
  })
})

describe("names", () => {
  const message = (url: string) => ({ url, secrets: ["whsec_"], eventId: "e", idempotencyKey: "d", body: "{}" })
  const resolve = () => openResolver({ systemToo: false, servers: [names.address] })

  it.each([
    [["127.0.0.1"]],
    [["10.1.2.3"]],
    [["0:0:0:0:0:0:0:1"]],
    [["0:0:0:0:0:ffff:7f00:1"]],
    [["8.8.8.8", "127.0.0.1"]],
    [["8.8.8.8", "0:0:0:0:0:0:0:1"]],
  ])("that resolve to %j are not connected to", async addresses => {
    names.say(...addresses)
    const sender = openSender(closed, { resolve: resolve() })
    for (const scheme of ["http", "https"]) {
      const { error } = await sender.send(message(`${scheme}://hook.example:${port}/`), { timeoutMs: 20_000 })
      expect(error).toMatch(/^it points to an address that is not public/)
      // The message does not reveal the private address.
      for (const address of addresses) expect(error).not.toContain(address)
    }
    await sender.close()
    expect(connections).toBe(0)
  })

  it("that resolve differently at the next connection are refused there", async () => {
    // A receiver at an allowed address, and the same port at a forbidden one.
    const good = createServer(socket =>
      socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")),
    ).listen({ host: "127.0.0.3", port, exclusive: true })
    await once(good, "listening")
    const sender = openSender({ ...closed, allowCidrs: ["127.0.0.3/32"] }, { resolve: resolve() })
    names.say("127.0.0.3")
    const url = `http://rebinds.example:${port}/`
    expect(await sender.send(message(url), { timeoutMs: 20_000 })).toMatchObject({ status: 200, error: null })
    names.say("127.0.0.1")
    expect((await sender.send(message(url), { timeoutMs: 20_000 })).error).toMatch(/points to an address that is not/)
    expect(connections).toBe(0)
    await sender.close()
    good.close()
  })

  it("are resolved once per connection, so that the checked address is the one connected to", async () => {
    names.say("127.0.0.1")
    const sender = openSender(closed, { resolve: resolve() })
    const before = names.asked()
    await sender.send(message(`http://once.example:${port}/`), { timeoutMs: 20_000 })
    expect(names.asked() - before).toBe(2)
    await sender.close()
  })

  it("that nobody answers for end with the deadline, and delay no other", async () => {
    const to = await startReceiver()
    const slow = openSender({ ...webhooks }, { resolve: () => new Promise(() => {}) })
    const hanging = Promise.all(
      Array.from({ length: 20 }, (_, i) => slow.send(message(`http://h${i}.example/`), { timeoutMs: 1_000 })),
    )
    const { status } = await slow.send(message(to.url), { timeoutMs: 20_000 })
    expect(status).toBe(200)
    for (const { error } of await hanging) expect(error).toBe("no answer within 1 s")
    // Their sockets still wait for an address; stopping the service does not wait for them.
    await slow.close()
    await to.stop()
    // A connection may take 30 seconds to be made: the deadline of a delivery ends it before.
  }, 25_000)
})

it("the socket's own peer is checked last", async () => {
  const to = await startReceiver()
  let asked = 0
  // Allows the literal, but not the peer, as if another machine had answered.
  const connect = guardedConnector({ allows: () => asked++ === 0, resolve: async () => [], timeoutMs: 20_000 })
  const target = { hostname: "127.0.0.1", host: "127.0.0.1", protocol: "http:", port: String(to.port) }
  const [error, socket] = await new Promise<unknown[]>(resolve => connect(target, (...result) => resolve(result)))
  expect([String(error), socket]).toEqual([expect.stringMatching(/points to .* not (a )?public/), null])
  expect(to.received).toEqual([])
  await to.stop()
})

describe("a redirect", () => {
  it("to a private address is an answer, and is not followed", async () => {
    const to = await startReceiver(response => response.writeHead(307, { location: `http://127.0.0.1:${port}/` }).end())
    const sender = openSender(webhooks)
    const message = { url: to.url, secrets: ["whsec_"], eventId: "e", idempotencyKey: "d", body: "{}" }
    expect(await sender.send(message, { timeoutMs: 20_000 })).toMatchObject({ status: 307 })
    expect(connections).toBe(0)
    await sender.close()
    await to.stop()
  })
})

describe("certificates", () => {
  let dir: string
  let sender: Sender | undefined
  let server: ReturnType<typeof createTlsServer>
  const at = (name: string) => readFileSync(join(dir, name), "utf8")
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), "sluice-tls-"))
    const make = (name: string, days: string) =>
      execFileSync(
        "openssl",
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", days].concat(
          ["-keyout", join(dir, `${name}.key`), "-out", join(dir, `${name}.pem`), "-subj", "/CN=localhost"],
          ["-addext", "subjectAltName=DNS:localhost"],
        ),
        { stdio: "ignore" },
      )
    make("good", "2")
    server = createTlsServer({ key: at("good.key"), cert: at("good.pem") }, (_request, response) => response.end("ok"))
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
  })
  afterAll(() => {
    server.close()
    rmSync(dir, { recursive: true })
  })
  const send = async (host: string, ca?: string) => {
    sender = openSender(webhooks, ca === undefined ? {} : { ca })
    const url = `https://${host}:${(server.address() as AddressInfo).port}/`
    const message = { url, secrets: ["whsec_"], eventId: "e", idempotencyKey: "d", body: "{}" }
    const attempt = await sender.send(message, { timeoutMs: 20_000 })
    await sender.close()
    return attempt
  }

  it("are checked: one without a trusted issuer, and one for another name, are refused in words", async () => {
    expect(await send("localhost", at("good.pem"))).toMatchObject({ status: 200, error: null })
    expect(await send("localhost")).toMatchObject({
      status: null,
      error: expect.stringMatching(/^its certificate is not valid: self-signed certificate/),
    })
    expect(await send("127.0.0.1", at("good.pem"))).toMatchObject({
      status: null,
      error: expect.stringMatching(/^its certificate is not valid: .*(altnames|127\.0\.0\.1)/),
    })
  })
})

describe("isPublicAddress", () => {
  it.each(["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450::1"])(
    "%s is public",
    address => expect(isPublicAddress(address)).toBe(true),
  )
  it.each(["", "localhost", "1.2.3", "8.8.8.8:80", "fe80::1%eth0", "2606:4700::1%eth0", "::ffff:8.8.8.8"])(
    "%j is not",
    address => expect(isPublicAddress(address)).toBe(false),
  )
})

it("addressRule allows what an operator names, and nothing else", () => {
  const allows = addressRule(["10.0.0.0/8", "fd00::/8", "192.168.1.7"])
  for (const address of ["10.9.8.7", "fd00::1", "192.168.1.7", "8.8.8.8"]) expect(allows(address)).toBe(true)
  for (const address of ["11.0.0.0", "127.0.0.1", "192.168.1.8", "fc00::1", "", "x"])
    expect(allows(address)).toBe(address === "11.0.0.0")
})
