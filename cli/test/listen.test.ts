// `sluice listen`: what reaches a program on this machine, what the service hears of it, and what a killed one leaves behind.
import { statSync } from "node:fs"
import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { Webhook } from "standardwebhooks"
import { afterAll, afterEach, beforeAll, expect, it } from "vitest"
import { newSandbox, type Sandbox, until } from "../../server/test/e2e/program.ts"
import { type Cli, openCli, type Started } from "./program.ts"

let sandbox: Sandbox
let cli: Cli
beforeAll(async () => {
  // A lease ends half a minute after this time.
  const limits = { LIMIT_CONSOLE: "0", LIMIT_MERCHANT: "0", LIMIT_LISTENER: "0", WEBHOOK_TIMEOUT: "1s" }
  sandbox = await newSandbox(limits, "migrated")
  await sandbox.start()
  cli = await openCli(sandbox)
})
afterAll(() => sandbox?.remove())

/** What the service answers to the key. */
const api = async (path: string) =>
  (await sandbox.call(`/api/console/${path}`, undefined, { "x-api-key": cli.apiKey })).body
const delivery = async (id: string) => (await api(`deliveries/${id}`)).data
const listeners = async () => (await api("listeners")).data

interface Received {
  body: string
  headers: IncomingHttpHeaders
}
const receivers: Server[] = []
const started: Started[] = []
afterEach(async () => {
  for (const { child, ended } of started.splice(0)) {
    child.kill("SIGKILL")
    await ended
  }
  for (const server of receivers.splice(0)) server.close()
  for (const { id } of await listeners())
    await fetch(`${sandbox.url}/api/console/listeners/${id}`, {
      method: "DELETE",
      headers: { "x-api-key": cli.apiKey },
    })
})

/** A program on this machine; `status` is what it answers. */
async function receive(status: (nth: number) => number = () => 200) {
  const received: Received[] = []
  const server = createServer(async (request, response) => {
    let body = ""
    for await (const chunk of request) body += chunk
    received.push({ body, headers: request.headers })
    response.writeHead(status(received.length)).end("from localhost")
  })
  receivers.push(server)
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  return { received, to: `127.0.0.1:${(server.address() as AddressInfo).port}/hook` }
}

/** Starts it, and waits until it shows its listener. */
async function listen(to: string, ...more: string[]) {
  const run = cli.start(["listen", "--forward-to", to, "--json", ...more])
  started.push(run)
  await until("it listens", () => run.seen.out.includes("\n") || run.child.exitCode !== null)
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  const lines = (): any[] =>
    run.seen.out
      .split("\n")
      .slice(1, -1)
      .map(text => JSON.parse(text))
  return { ...run, first: JSON.parse(run.seen.out.split("\n")[0] ?? ""), lines }
}

/** Makes an event happen at once: of a webhook that is added and removed, two for each listener. */
async function change(): Promise<void> {
  const authorization = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
  const body = { url: `${sandbox.url}/sandbox/inbox/listen`, events: ["checkout.confirmed"] }
  const { status, body: made } = await sandbox.call("/api/console/webhooks", body, authorization)
  expect(status, JSON.stringify(made)).toBe(201)
  await fetch(`${sandbox.url}/api/console/webhooks/${made.data.id ?? made.data.webhook.id}`, {
    method: "DELETE",
    headers: authorization,
  })
}

it("posts the bytes and headers of a webhook, and the service shows what the program answered", async () => {
  const { received, to } = await receive()
  const { first, lines, child, ended } = await listen(to, "--events", "settings.webhook_changed")
  expect(first).toMatchObject({ listenerId: expect.stringMatching(/^lsn_/), resumed: false, to: `http://${to}` })
  await change()
  await until("both events are there", () => lines().length === 2)
  for (const { body, headers } of received) {
    expect(new Webhook(first.secret).verify(body, headers as Record<string, string>)).toMatchObject({
      event: "settings.webhook_changed",
    })
    expect(headers["content-type"]).toBe("application/json")
    expect(headers).not.toHaveProperty("accept-language")
  }
  const [{ deliveryId, ...line }] = lines()
  expect(line).toMatchObject({ status: 200, attempt: 1, repeat: false, callbackUrl: null })
  await until("the answer is recorded", async () => (await delivery(deliveryId)).status === "delivered")
  expect(JSON.stringify(await delivery(deliveryId))).toContain("from localhost")

  child.kill("SIGINT")
  expect(await ended).toMatchObject({ code: 0, errors: "" })
  expect(await listeners()).toEqual([])
})

it("shows a terminal how many of the events that waited are left", async () => {
  const { to } = await receive()
  const one = await listen(to, "--events", "settings.webhook_changed")
  one.child.kill("SIGKILL")
  await one.ended
  await change()
  const run = cli.start(["listen", "--forward-to", to, "--events", "settings.webhook_changed"], cli.env, true)
  started.push(run)
  await until("both have arrived", () => run.seen.out.includes("] 2 of 2"))
  expect(run.seen.out).toContain(`Events that waited  [${"-".repeat(24)}] 0 of 2`)
  expect(run.seen.out).toContain(`[${"#".repeat(12)}${"-".repeat(12)}] 1 of 2`)
})

it("goes on after a kill with the same listener, and shows what it posts again as a repeat", async () => {
  const { received, to } = await receive()
  const one = await listen(to, "--events", "settings.webhook_changed")
  await change()
  await until("it has forwarded", () => one.lines().length === 2)
  const [{ deliveryId, eventId }] = one.lines()
  await until("it is recorded", async () => (await delivery(deliveryId)).status === "delivered")
  one.child.kill("SIGKILL")
  await one.ended
  const folder = join(sandbox.dir, "listeners")
  expect(statSync(folder).mode & 0o777).toBe(0o700)

  for (let i = 0; i < 5; i++) await change()
  const two = await listen(to, "--events", "settings.webhook_changed")
  expect(two.first).toMatchObject({ listenerId: one.first.listenerId, secret: one.first.secret, resumed: true })
  await until("all are there", () => two.lines().length >= 10)
  await cli.json("events", "resend", eventId)
  await until("the resend is there", () => two.lines().some(each => each.deliveryId === deliveryId))
  expect(
    two
      .lines()
      .filter(({ repeat }) => repeat)
      .map(each => each.deliveryId),
  ).toEqual([deliveryId])
  expect(new Set(received.map(({ headers }) => headers["webhook-id"])).size).toBe(12)
  // A second one with the same receiver gets a listener of its own: two would share the events of one.
  const three = await listen(to, "--events", "settings.webhook_changed")
  expect(three.first).toMatchObject({ resumed: false })
  expect(three.first.listenerId).not.toBe(one.first.listenerId)
})

it("reports a failure, and shows the service's retry as a repeat", async () => {
  const { to } = await receive(nth => (nth === 1 ? 500 : 200))
  const { lines, child, ended } = await listen(to, "--events", "settings.webhook_changed")
  await change()
  await until("the first try failed", () => lines().some(({ status }) => status === 500))
  const { deliveryId } = lines().find(({ status }) => status === 500)
  await until("the service knows", async () => (await delivery(deliveryId)).log.length === 1)
  await cli.json("deliveries", "resend", deliveryId)
  await until("the second try succeeded", () =>
    lines().some(each => each.deliveryId === deliveryId && each.status === 200),
  )
  expect(lines().find(each => each.deliveryId === deliveryId && each.status === 200)).toMatchObject({ repeat: true })
  child.kill("SIGTERM")
  expect((await ended).code).toBe(0)
})

it("reports an address where nobody listens", async () => {
  const { lines, seen } = await listen("127.0.0.1:9", "--events", "settings.webhook_changed")
  await change()
  await until("it failed", () => lines().length === 2)
  expect(lines()[0].error).toMatch(/ECONNREFUSED/)
  expect(seen.errors).toBe("")
})

it("runs a command meanwhile, which has the secret, and ends with its exit code", async () => {
  const { received, to } = await receive()
  const exec = 'test "$SLUICE_WEBHOOK_SECRET" && exit 7'
  const run = cli.start(["listen", "--forward-to", to, "--json", "--exec", exec])
  expect(await run.ended).toMatchObject({ code: 7, errors: "" })
  expect(received).toEqual([])
  expect(await listeners()).toEqual([])
})

it("ends with a sentence when somebody else ended its listener", async () => {
  const { ended, first } = await listen("127.0.0.1:9", "--events", "settings.webhook_changed")
  await cli.json("listeners", "delete", first.listenerId)
  const { code, errors } = await ended
  expect([code, JSON.parse(errors)]).toEqual([
    4,
    expect.objectContaining({ message: expect.stringMatching(/has ended/) }),
  ])
})

it.each([
  ["no target", []],
  ["no address", ["--forward-to", "ftp://127.0.0.1/"]],
  ["an unknown event", ["--print", "--events", "no.such"]],
])("refuses %s, and makes nothing", async (_, args) => {
  const { code, errors } = await cli.run(["listen", ...args, "--json"])
  expect([code, JSON.parse(errors).exitCode]).toEqual([2, 2])
  expect(await listeners()).toEqual([])
})
