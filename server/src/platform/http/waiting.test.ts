// Requests that wait, over HTTP: what they read together, what each may see, and how they end.
import { get, type IncomingMessage } from "node:http"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { until } from "../../../test/e2e/program.ts"
import { lifeOf } from "../../../test/life.ts"
import { startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn } from "../../../test/relays.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { payoutRound } from "../../ledger/txmanager/run-round.ts"
import type { Address, Hash } from "../chain/hex.ts"
import { type Names, payerName } from "../jobs/wake-payload.ts"
import { waitsOf } from "./open-waits.ts"

const hash = (n: number) => `0x${`${n}`.padStart(64, "0")}` as Hash
const payer = (n: number) => `0x${`${n}`.padStart(40, "0")}` as Address

/** A service with a merchant, whose network was scanned a moment ago. */
async function open(): Promise<{ service: TestService; url: string }> {
  const service = await startService()
  const url = await service.listen()
  await service.merchant("shop")
  const read = { block_number: 1n, block_hash: hash(1), finalized_number: 1n, looked_at: new Date() }
  await service.ctx.db
    .insertInto("cursors")
    .values({ chain_id: 84532, run_at: new Date(), ...read })
    .execute()
  return { service, url }
}

const sell = async (service: TestService): Promise<string> =>
  (await service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "shop" })).body.id

/** A live page: the states that it was sent. Each of twenty has an address of its own, as each may open twenty. */
function follow(url: string, i = 0) {
  const states: { status: string }[] = []
  const ended = Promise.withResolvers<void>()
  let text = ""
  const read = (response: IncomingMessage) => {
    response.setEncoding("utf8").on("close", ended.resolve)
    response.on("data", part => {
      text += part
      const parts = text.split("\n\n")
      text = parts.pop() ?? ""
      for (const each of parts) if (each.startsWith("data: {")) states.push(JSON.parse(each.slice(6)))
    })
  }
  const request = get(url, { localAddress: `127.0.3.${1 + Math.floor(i / 20)}`, agent: false }, read)
  return { states, ended: ended.promise, close: () => request.destroy() }
}

const poll = async (url: string): Promise<{ status: string; body: { status: string } }> => {
  const response = await fetch(url)
  return { status: `${response.status}`, body: (await response.json()) as { status: string } }
}

/** Counts the statements of this process that read what `pattern` matches. */
function countStatements(pattern: RegExp) {
  const { query } = pg.Client.prototype
  let n = 0
  pg.Client.prototype.query = function (this: pg.Client, ...given: unknown[]) {
    const [statement] = given as [{ text?: string } | string]
    if (pattern.test(typeof statement === "string" ? statement : (statement?.text ?? ""))) n++
    return query.apply(this, given as never)
  } as typeof query
  return {
    take: () => {
      const taken = n
      n = 0
      return taken
    },
    stop: () => {
      pg.Client.prototype.query = query
    },
  }
}

describe("those who wait", () => {
  let service: TestService
  let url: string
  beforeAll(async () => ({ service, url } = await open()))
  afterAll(() => service.stop())
  const fail = async (id: string) => {
    const failed = { status: "failed" as const, updated_at: new Date() }
    await service.ctx.db.updateTable("checkout_sessions").set(failed).where("id", "=", id).execute()
  }

  it.runIf(onPostgres)("for one checkout read it once for each change, and another's change not at all", async () => {
    const id = await sell(service)
    const other = await sell(service)
    const statements = countStatements(/from "checkout_sessions" where id = any/)
    const pages = Array.from({ length: 60 }, (_, i) => follow(`${url}/pay/${id}/events`, i))
    const polls = Array.from({ length: 60 }, () => poll(`${url}/api/pay/status/${id}?wait=25`))
    await until("all wait", () => pages.every(({ states }) => states.length === 1))
    statements.take()
    await service.ctx.wakes.wake("payments", [other])
    await fail(id)
    await service.ctx.wakes.wake("payments", [id])
    await until("all are notified", () => pages.every(({ states }) => states.at(-1)?.status === "failed"))
    expect((await Promise.all(polls)).map(({ body }) => body.status)).toEqual(Array(60).fill("failed"))
    // Alone they would have been 120 for each change. On a slow machine some reads were due by their time.
    expect(statements.take()).toBeLessThan(20)
    statements.stop()
    expect(pages.map(({ states }) => states.map(({ status }) => status))).toEqual(Array(60).fill(["pending", "failed"]))
    for (const each of pages) each.close()
  })

  it("see what they asked for and nothing else: access is each payer's own, whoever waits beside it", async () => {
    const paywall = (await service.call("POST", "/api/console/paywalls", { name: "P", price: 5 }, { as: "shop" })).body
    const page = (n: number, i: number) => follow(`${url}/paywall/${paywall.id}/events?address=${payer(n)}`, i)
    const pages = Array.from({ length: 40 }, (_, i) => ({ n: i % 4, ...page(i % 4, i) }))
    const polls = Array.from({ length: 4 }, (_, n) => poll(`${url}/paywall/${paywall.id}/status?address=${payer(n)}`))
    await until("all wait", () => pages.every(({ states }) => states.length === 1))
    expect((await Promise.all(polls)).map(({ body }) => body)).toEqual(pages.slice(0, 4).map(({ states }) => states[0]))
    const until_at = new Date(Date.now() + 3_600_000)
    await service.ctx.db
      .insertInto("access")
      .values({ paywall_id: paywall.id, address: payer(2), expires_at: until_at, tx_hash: hash(7) })
      .execute()
    await service.ctx.wakes.wake("payments", [payerName(paywall.id, payer(2))])
    await until("the payer's pages are notified", () =>
      pages.every(({ n, states }) => n !== 2 || states.at(-1)?.status === "confirmed"),
    )
    // All are read again.
    await service.ctx.wakes.wake("payments")
    const late = Array.from({ length: 4 }, (_, n) => page(n, 50 + n))
    await until("more came", () => late.every(({ states }) => states.length === 1))
    for (const { n, states } of [...pages, ...late.map((each, n) => ({ n, ...each }))]) {
      expect(states.filter(({ status }) => status === "confirmed").length).toBe(n === 2 ? 1 : 0)
      expect(new Set(states.map(state => (state as unknown as { address: string }).address.toLowerCase()))).toEqual(
        new Set([payer(n)]),
      )
    }
    for (const each of [...pages, ...late]) each.close()
  })

  it("for different submissions of one checkout each see their own", async () => {
    const id = await sell(service)
    const submission = {
      resource_id: id,
      chain_id: 84532,
      by_sender: false,
      submitted_at: new Date(),
      updated_at: new Date(),
    }
    for (const n of [1, 2])
      await service.ctx.db
        .insertInto("submissions")
        .values({ ...submission, tx_hash: hash(n), status: "verifying", message: `${n}` })
        .execute()
    const waiting = [1, 2].map(n => poll(`${url}/api/pay/status/${id}?wait=25&txHash=${hash(n)}`))
    const refused = { status: "failed", reason: "not_found" } as const
    await service.ctx.db.updateTable("submissions").set(refused).where("tx_hash", "=", hash(2)).execute()
    await service.ctx.wakes.wake("payments", [id])
    expect((await waiting[1])?.body).toMatchObject({ submission: { txHash: hash(2), status: "failed" } })
    await fail(id)
    await service.ctx.wakes.wake("payments", [id])
    expect((await waiting[0])?.body).toMatchObject({ submission: { txHash: hash(1), status: "verifying" } })
  })
})

describe("at the end of a process", () => {
  it("all who wait are answered, and all streams end", async () => {
    const { service, url } = await open()
    const took = vi.spyOn(waitsOf(service.ctx).polls, "take")
    const ids = [await sell(service), await sell(service)]
    const pages = Array.from({ length: 40 }, (_, i) => follow(`${url}/pay/${ids[i % 2]}/events`, i))
    const polls = Array.from({ length: 40 }, (_, i) => poll(`${url}/api/pay/status/${ids[i % 2]}?wait=25`))
    await until("all wait", () => took.mock.calls.length === 40 && pages.every(({ states }) => states.length === 1))
    const stopped = service.stop()
    await Promise.all(pages.map(({ ended }) => ended))
    expect((await Promise.all(polls)).map(({ status, body }) => [status, body.status])).toEqual(
      Array(40).fill(["200", "pending"]),
    )
    await stopped
  })
})

describe("wake-ups", () => {
  it("name what changed, from a transfer and from a signature, so that nobody else's state is read", async () => {
    const rig = await startPayoutRig()
    const { ctx } = rig.service
    const life = lifeOf(rig)
    const relays = relaysOn(rig)
    await relays.begin()
    const named: Names[] = []
    ctx.wakes.onWake("payments", names => named.push(names))
    const sold = await relays.start({ amount: 5 })
    const bought = await relays.start({ amount: 5 })
    const paywall = (await rig.service.call("POST", "/api/console/paywalls", { name: "P", price: 5 }, { as: "shop" }))
      .body
    const { payTo } = (await rig.service.call("GET", `/api/paywalls/${paywall.id}`)).body
    await life.send(sold.payTo, 5_000_000n)
    await life.send(payTo, 5_000_000n)
    expect((await relays.submit(bought, await relays.sign(await relays.buyer(), bought))).status).toBe(200)
    for (let i = 0; i < 3; i++) {
      await payoutRound(ctx, relayLane(rig.network, rig.relayer))
      await life.settle()
    }
    expect((await relays.status(bought.id)).status).toBe("confirmed")
    const { id: relay } = await ctx.db
      .selectFrom("payouts")
      .select("id")
      .where("kind", "=", "authorize")
      .executeTakeFirstOrThrow()
    const { from_address: sender } = await ctx.db
      .selectFrom("transfers")
      .innerJoin("deposits", "deposits.id", "transfers.deposit_id")
      .select("from_address")
      .where("resource_id", "=", paywall.id)
      .executeTakeFirstOrThrow()
    const all = new Set([sold.id, bought.id, relay, payerName(paywall.id, sender)])
    await until("all were heard", () => all.isSubsetOf(new Set(named.flat())))
    expect(named.filter(names => names === undefined)).toEqual([])
    expect(new Set(named.flat())).toEqual(all)
    await rig.stop()
  })
})
