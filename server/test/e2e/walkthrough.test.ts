import { execFile } from "node:child_process"
import { globSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout } from "node:timers/promises"
import { promisify } from "node:util"
import Stripe from "stripe"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { freePort, isTaken, newSandbox, type Run, root, type Sandbox, until } from "./program.ts"

const blocksOf = (path: string) =>
  [...readFileSync(join(root, path), "utf8").matchAll(/^```sh(.*)\n([\s\S]*?)^```$/gm)].map(match => ({
    kind: match[1]?.trim(),
    text: match[2] ?? "",
  }))
const blocks = blocksOf("README.md")

let sandbox: Sandbox
let run: Run
beforeAll(async () => {
  // `--reset` below is the start without a database, and `kill.test.ts` has the first one.
  sandbox = await newSandbox({}, "migrated")
  run = await sandbox.start()
})
afterAll(() => sandbox.remove())

/**
 * A payment is confirmed in some five seconds; on a busy machine a request that waits for it is sent again after its 25. Each second's
 * sleep passes five more for the service and its chain: a refund looks for its allowance after fifteen.
 */
const prelude = `curl() {
  local answer
  while answer=$(command curl "$@"); [[ "$*" == *wait=* && "$answer" =~ \\"status\\":\\"(pending|verifying)\\" ]]; do :; done
  printf %s "$answer"
}
sleep() {
  command sleep "$1"
  command curl -sf "$API/sandbox/clock" -H "Content-Type: application/json" -d '{"advance":"5s"}' >/dev/null
}
`

/** Runs lines of a document in a shell, on the test's sandbox. */
async function shell(text: string, more: Record<string, string> = {}): Promise<string> {
  const env = { ...process.env, ...more, DATA_DIR: sandbox.dir, ORIGIN_PORT: `${await freePort()}` }
  const { stdout } = await promisify(execFile)("bash", ["-euo", "pipefail", "-c", prelude + text], { cwd: root, env })
  return stdout
}

/** A picture of one pixel. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="

/** Where payers look at what the walks made. */
const pages: string[] = []

/** What the commands of a block answer, in turn. */
const answersOf = async (text = "") => (await shell(text)).split(/(?<=\})\s*(?=\{)/).map(answer => JSON.parse(answer))

/** The one block of commands in a document. */
function walkOf(path: string): string {
  const [walk, ...others] = blocksOf(path).filter(block => block.kind !== "")
  expect([walk?.kind, others]).toEqual(["walkthrough", []])
  return walk?.text ?? ""
}

describe("the README", () => {
  it("names only commands that are run here or by script/test itself", async () => {
    expect(blocks.map(({ kind, text }) => [kind, text.trim()])).toEqual([
      ["", "script/server"],
      ["walkthrough", "script/sluice trigger checkout.confirmed"],
    ])
    expect(await shell(blocks[1]?.text ?? "", { SLUICE_URL: sandbox.url })).toMatch(/^event +checkout\.confirmed$/m)
  })
})

describe("docs/merchants/paywalls.md", () => {
  it("walks a newcomer from nothing to access", async () => {
    const answers = await answersOf(walkOf("docs/merchants/paywalls.md"))
    const [paywall, before, submitted, state, after] = answers
    pages.push(`/paywall/${paywall.id}`)
    expect(paywall).toMatchObject({ name: "My first paywall", price: "5.00", currency: "USDC", chainId: 84532 })
    expect(before).toEqual({ hasAccess: false })
    expect(submitted).toMatchObject({ status: "verifying", paywallId: paywall.id })
    expect(state).toMatchObject({ status: "granted", txHash: submitted.txHash })
    expect(after).toEqual({ hasAccess: true, expiresAt: "9999-12-31T23:59:59.999Z", txHash: submitted.txHash })
  })
})

describe("docs/merchants/first-payment.md", () => {
  it("walks through a checkout, and its event is in the inbox", async () => {
    const [sent, status] = await answersOf(walkOf("docs/merchants/first-payment.md"))
    pages.push(`/pay/${status.sessionId}`, `/receipt/${status.sessionId}`)
    expect(status).toMatchObject({ status: "confirmed", amount: "19.90", txHash: sent.txHash, exception: null })
    let notified: { name: string; body: string }[] = []
    await until("the inbox got the event", async () => {
      notified = (await sandbox.call("/sandbox/inbox")).body.data.filter(
        (each: { name: string }) => each.name === "shop",
      )
      return notified.length > 0
    })
    expect(JSON.parse(notified[0]?.body ?? "")).toMatchObject({
      event: "checkout.session.completed",
      data: { id: status.sessionId, status: "confirmed", amount: "19.90" },
    })
  })
})

describe("docs/merchants/returns.md", () => {
  it("sends an underpaid payment back, and says so in words", async () => {
    const text = await shell(walkOf("docs/merchants/returns.md"))
    // The last answer is a sentence.
    const [sent = "", returned = "", why = ""] = text.trim().split(/(?<=\})\s*(?=[{Y])/)
    expect(JSON.parse(sent).txHash).toMatch(/^0x/)
    expect(JSON.parse(returned)).toMatchObject({ status: "returned", exception: "underpaid", amount: "12.00" })
    expect(why).toMatch(/^You decided to send this payment of 12\.00 USDC back to 0x/)
  })
})

describe("docs/developers/webhooks.md", () => {
  it("registers an endpoint, tests it, and shows what it answered", async () => {
    const [tested, list] = await answersOf(walkOf("docs/developers/webhooks.md"))
    expect(tested.data ?? tested).toMatchObject({ id: expect.any(String) })
    expect(list.data).toMatchObject([{ event: "ping", url: `${sandbox.url}/sandbox/inbox/guide` }])
  })
})

describe("docs/merchants/escrow.md", () => {
  it("reserves a payment, captures a part of it, releases the rest, and refunds a part", async () => {
    const walk = walkOf("docs/merchants/escrow.md")
    const [signed, reserved, captured, released, approved, end] = await answersOf(walk)
    const { sessionId } = signed
    expect(signed).toMatchObject({ status: "verifying", txHash: null })
    expect(reserved).toMatchObject({ sessionId, status: "authorized", capture: "manual", captured: "0.00" })
    expect(captured).toMatchObject({ sessionId, amount: "12.00", status: "pending" })
    expect(released).toMatchObject({ sessionId, amount: "7.90", status: "pending" })
    expect(approved).toEqual({ result: expect.stringMatching(/^0x[0-9a-f]{64}$/) })
    const amounts = { captured: "12.00", released: "7.90", refunded: "2.00" }
    expect(end).toMatchObject({ sessionId, status: "partially_refunded", ...amounts })
  })
})

describe("docs/merchants/subscriptions.md", () => {
  it("begins a subscription with its first payment, and makes the invoice of the next period", async () => {
    const walk = walkOf("docs/merchants/subscriptions.md")
    const [sent, begun, clock, renewed] = await answersOf(walk)
    expect([sent.txHash, Number.isNaN(Date.parse(clock.now))]).toEqual([expect.stringMatching(/^0x/), false])
    const [subscription] = begun.data
    const { id: subscriptionId, paidUntil: periodStart, productId } = subscription
    expect(begun.total).toBe(1)
    expect(subscription).toMatchObject({ status: "active", trialDays: 14, customerEmail: "reader@shop.example" })
    const invoice = { subscriptionId, productId, sequence: 2, status: "open", amount: "5.00", periodStart }
    expect(renewed).toMatchObject({ data: [invoice], total: 1 })
    pages.push(`/invoice/${renewed.data[0].id}`)
  })
})

describe("docs/developers/x402.md", () => {
  it("sells a report to agents, and lists it", async () => {
    const walk = walkOf("docs/developers/x402.md")
    const [paywall, required, listed] = await answersOf(walk)
    expect(required.accepts).toMatchObject([
      { maxAmountRequired: "500000", resource: `${sandbox.url}/api/p/${paywall.slug}` },
    ])
    expect(JSON.stringify(listed)).toContain(`/api/p/${paywall.slug}`)
  })
})

describe("docs/developers/x402-proxy.md", () => {
  it("puts an API behind a price: its description, a free route, and one that is paid", async () => {
    const walk = walkOf("docs/developers/x402-proxy.md")
    const [bundle, described, free, required] = await answersOf(walk)
    expect(bundle).toMatchObject({ name: "Weather", originHeaders: ["authorization"] })
    expect(described.routes).toHaveLength(2)
    expect(free).toEqual({ path: "/v1/cities" })
    expect(required.accepts).toMatchObject([{ maxAmountRequired: "10000" }])
  })
})

/** Commands of other tests, or of none, with the reason. */
const RUN_ELSEWHERE = [
  "npx @sluice/verify", // verify/packed.test.ts runs the package; these name networks of others
  "sluice mcp --buyer", // cli/acceptance
  "secret-tool store", // cli/test/keyring.long.ts
  "script/server", // this file
]

describe("single commands of the guides", () => {
  const guides = globSync("docs/{merchants,developers}/*.md", { cwd: root }).flatMap(path =>
    blocksOf(path)
      .filter(({ kind, text }) => kind === "" && !RUN_ELSEWHERE.some(known => text.includes(known)))
      .map(({ text }): [string, string] => [path, text]),
  )

  let env: Record<string, string>
  beforeAll(async () => {
    const { accessToken, apiKey } = sandbox.file().merchants[0]
    const as = { authorization: `Bearer ${accessToken}` }
    const { body: changes } = await sandbox.call("/api/console/changes", undefined, as)
    const endpoint = { url: `${sandbox.url}/sandbox/inbox/commands`, events: ["*"] }
    const { body: webhook } = await sandbox.call("/api/console/webhooks", endpoint, as)
    await sandbox.call("/api/console/payments/pay_none", undefined, as)
    const refused = async () =>
      (await sandbox.call("/api/console/requests?status=refused", undefined, as)).body.data[0]?.requestId
    await until("the request is in the log", async () => {
      // Entries are written within a second, and a person has a limit a minute.
      await setTimeout(1_000)
      return (await refused()) !== undefined
    })
    env = {
      API: sandbox.url,
      TOKEN: accessToken,
      SLUICE_URL: sandbox.url,
      SLUICE_API_KEY: apiKey,
      WEBHOOK: webhook.data.id,
      REQUEST_ID: await refused(),
      POSITION: changes.next,
      HOME: sandbox.dir,
    }
  })

  it.each(guides)("%s: %s", async (_, text) => {
    writeFileSync(join(sandbox.dir, "logo.png"), Buffer.from(PIXEL, "base64"))
    // A stream and a log go on until somebody ends them; whatever is refused ends with an error.
    const around = `cd ${sandbox.dir}
curl() { case "$*" in *stream*) timeout 2 "$(command -v -p curl)" -fs "$@" || [ $? = 124 ] ;; *) command curl -fs "$@" ;; esac }
sluice() { timeout 5 ${root}script/sluice "$@" || [ $? = 124 ]; }
`
    const script = around + text.replaceAll("https://pay.example", sandbox.url)
    const { stdout } = await promisify(execFile)("bash", ["-euo", "pipefail", "-c", script], {
      env: { ...process.env, ...env },
    })
    expect(stdout).not.toBe("")
  })
})

describe("the pages of what was sold", () => {
  it("are read from the embedded database too; `web` has them on Postgres", async () => {
    expect(pages).toHaveLength(4)
    for (const page of pages) {
      const response = await fetch(sandbox.url + page)
      expect([page, response.status]).toEqual([page, 200])
      expect(await response.text()).toMatch(/(5|19)\.[09]0/)
    }
  })
})

describe("script/server", () => {
  it("prints a curl that makes a paywall", async () => {
    const text = run.output()
    // The log may follow: an alarm of an earlier test, which had moved the clock.
    const [command = ""] = text.slice(text.indexOf("curl")).split("\n\n")
    expect(JSON.parse(await shell(command))).toMatchObject({ name: "My first paywall", price: "5.00" })
  })

  it("writes sandbox.json for its owner's eyes, with all that sandbox users need", () => {
    expect(statSync(join(sandbox.dir, "sandbox.json")).mode & 0o777).toBe(0o600)
    const address = expect.stringMatching(/^0x[0-9a-fA-F]{40}$/)
    const merchant = {
      id: expect.stringMatching(/^mer_/),
      name: expect.any(String),
      payoutAddress: address,
      accessToken: expect.stringMatching(/^eyJ/),
      apiKey: expect.stringMatching(/^sk_test_[0-9A-Za-z]{40}$/),
      webhookSecret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
    }
    expect(sandbox.file()).toEqual({
      baseUrl: sandbox.url,
      rpcUrl: `http://127.0.0.1:${sandbox.rpcPort}`,
      chain: "base-sepolia",
      chainId: 84532,
      pid: expect.any(Number),
      token: { address, symbol: "USDC", decimals: 6, name: "USDC", version: "2" },
      merchants: [merchant, merchant],
      buyers: Array(5).fill({ address, privateKey: expect.stringMatching(/^0x[0-9a-f]{64}$/) }),
      wallets: { payout: address, relay: address },
      depositFactory: address,
      escrow: { address, version: "v1.1", collector: address, refundCollector: address },
    })
  })

  it("moves the clock of the service and of the chain", async () => {
    const block = async () => {
      const request = { jsonrpc: "2.0", id: 1, method: "eth_getBlockByNumber", params: ["latest", false] }
      const response = await fetch(sandbox.file().rpcUrl, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(request),
      })
      return Number.parseInt(((await response.json()) as { result: { timestamp: string } }).result.timestamp, 16)
    }
    const before = await block()
    const { body } = await sandbox.call("/sandbox/clock", { advance: "31d" })
    expect(new Date(body.now).getTime() - Date.now()).toBeGreaterThan(31 * 86_400_000 - 60_000)
    expect((await block()) - before).toBeGreaterThanOrEqual(31 * 86_400)
    for (const advance of ["31", "-1d", "1y", "9999d"])
      expect((await sandbox.call("/sandbox/clock", { advance })).status).toBe(400)
  })

  it("hands out tokens, mines, and keeps what webhooks bring", async () => {
    const address = sandbox.file().wallets.relay
    expect((await sandbox.call("/sandbox/faucet", { address, amount: "12.5" })).body.txHash).toMatch(/^0x[0-9a-f]{64}$/)
    expect((await sandbox.call("/sandbox/faucet", { address: "0x1" })).status).toBe(400)
    const { body: first } = await sandbox.call("/sandbox/mine", { blocks: 1 })
    const { body: second } = await sandbox.call("/sandbox/mine", { blocks: 5 })
    expect(second.blockNumber).toBeGreaterThanOrEqual(first.blockNumber + 5)
    const { total } = (await sandbox.call("/sandbox/inbox")).body
    await sandbox.call("/sandbox/inbox/orders", { event: "ping" }, { "x-signature": "abc" })
    const { body: inbox } = await sandbox.call("/sandbox/inbox")
    expect(inbox.total).toBe(total + 1)
    expect(inbox.data[0]).toMatchObject({ name: "orders", body: '{"event":"ping"}', headers: { "x-signature": "abc" } })
  })

  it("answers no page of another origin at its own routes, its identity provider included", async () => {
    const foreign = { origin: "http://127.0.0.1:3000", "sec-fetch-site": "same-site" }
    for (const path of ["/sandbox/clock", "/sandbox/wallet", "/sandbox/oidc/token", "/sandbox/inbox/orders"])
      expect(await sandbox.call(path, { advance: "1d" }, foreign)).toMatchObject({ status: 403 })
    for (const path of ["/sandbox", "/sandbox/try/checkout", "/sandbox/inbox", "/sandbox/oidc/jwks"])
      expect(await sandbox.call(path, undefined, foreign)).toMatchObject({ status: 403 })
  })

  it("has a page to begin with, at the root too, whose buttons open a checkout and a paywall", async () => {
    const begin = await fetch(sandbox.url)
    expect([begin.status, begin.url]).toEqual([200, `${sandbox.url}/sandbox`])
    const html = await begin.text()
    for (const { name, id } of sandbox.file().merchants) for (const fact of [name, id]) expect(html).toContain(fact)
    for (const [path, opened] of [
      ["/sandbox/try/checkout", /\/pay\/cs_\w+$/],
      ["/sandbox/try/paywall", /\/paywall\/pw_\w+$/],
    ] as const) {
      expect(html).toContain(`href="${path}"`)
      const page = await fetch(sandbox.url + path)
      expect([page.status, page.url]).toEqual([200, expect.stringMatching(opened)])
    }
  })

  it("delivers events to its own inbox, signed", async () => {
    const auth = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
    const hook = { url: `${sandbox.url}/sandbox/inbox/hooks`, events: ["*", "paywall.granted"] }
    const { status, body } = await sandbox.call("/api/console/webhooks", hook, auth)
    expect(status).toBe(201)
    const { id, secret } = body.data
    expect((await sandbox.call(`/api/console/webhooks/${id}/test`, {}, auth)).status).toBe(201)
    const received = async () =>
      (await sandbox.call("/sandbox/inbox")).body.data.filter((each: { name: string }) => each.name === "hooks")
    await until("the ping and the test are in the inbox", async () => (await received()).length === 2)
    for (const { headers, body } of await received())
      expect(Stripe.webhooks.constructEvent(body, headers["service-signature"], secret)).toMatchObject({
        event: "ping",
      })
  })

  it.each([
    ["a busy port", () => newSandbox({ PORT: String(sandbox.port) }), () => `Port ${sandbox.port} is in use`],
    ["a busy port of the chain", () => newSandbox({ RPC_PORT: String(sandbox.rpcPort) }), () => "RPC_PORT"],
    ["a data folder in use", () => newSandbox({ DATA_DIR: sandbox.dir }), () => sandbox.dir],
    ["a wrong setting", () => newSandbox({ VERIFY_INTERVAL: "soon" }), () => "VERIFY_INTERVAL must be a duration"],
    ["an open host", () => newSandbox({ HOST: "0.0.0.0" }), () => "SANDBOX_PUBLIC=1"],
  ])("reports %s in a sentence, not a stack trace", async (_what, place, words) => {
    const rival = await place()
    const start = rival.spawn()
    const { code } = await start.ended
    await rival.remove()
    expect(code).toBe(1)
    expect(start.output()).toContain(words())
    expect(start.output()).not.toMatch(/^\s+at /m)
  })

  it("stops at SIGTERM, leaves no port held, and finds its data again on the next start", async () => {
    const before = sandbox.file()
    const auth = { authorization: `Bearer ${before.merchants[0].accessToken}` }
    const list = async (file: { merchants: { accessToken: string }[] }) =>
      (
        await sandbox.call("/api/console/paywalls", undefined, {
          authorization: `Bearer ${file.merchants[0]?.accessToken}`,
        })
      ).body
    const paywalls = await list(before)
    expect(paywalls.total).toBeGreaterThan(0)
    expect(await run.kill("SIGTERM")).toEqual({ code: 0, signal: null })
    expect([await isTaken(sandbox.port), await isTaken(sandbox.rpcPort)]).toEqual([false, false])
    run = await sandbox.start()
    const after = sandbox.file()
    expect(await list(after)).toEqual(paywalls)
    const keys = (file: typeof before) => ({
      ...file,
      pid: 0,
      merchants: file.merchants.map((each: object) => ({ ...each, accessToken: "" })),
    })
    expect(keys(after)).toEqual(keys(before))
    // A token of the start before is still good, and so is the key.
    expect((await sandbox.call("/api/console/settings", undefined, auth)).status).toBe(200)
    const [id] = paywalls.paywalls.map((paywall: { id: string }) => paywall.id).slice(-1)
    const call = (key: string) =>
      sandbox.call(`/api/paywalls/${id}/consume`, { address: before.buyers[0].address }, { "x-api-key": key })
    expect((await call(before.merchants[0].apiKey)).body).toEqual({ allowed: true, remaining: null })
    expect((await call(before.merchants[1].apiKey)).status).toBe(404)
    const access = await sandbox.call(`/api/paywalls/${id}/verify?address=${before.buyers[0].address}`)
    expect(access.body.hasAccess).toBe(true)
  })

  it("starts from scratch with --reset", async () => {
    const before = sandbox.file()
    await run.kill("SIGTERM")
    run = await sandbox.start("--reset")
    const after = sandbox.file()
    expect(after.merchants[0].id).not.toBe(before.merchants[0].id)
    const auth = { authorization: `Bearer ${after.merchants[0].accessToken}` }
    expect((await sandbox.call("/api/console/paywalls", undefined, auth)).body).toEqual({ paywalls: [], total: 0 })
  })
})
