/** What anyone can put on chain, and one endpoint into its answers, decides neither a round's time nor others' payments. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Floods, shapes, startFloods } from "../../../test/floods.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { stretchOf } from "../../../test/stretch.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { ensureCursor } from "./scan-round.ts"

const BUYER = `0x${"a".repeat(40)}` as Address
const PRICE = 5_000_000n
/** The embedded database runs its statements in this thread, so what it does is not ours to divide. */
const MAX_MS = process.env.DATABASE_URL ? 50 : 500
/** Work beside the tests can make a stretch longer, never shorter: the shortest of a few tries counts. */
const TRIES = 3

let service: TestService
let floods: Floods

beforeAll(async () => {
  service = await startService()
})
afterAll(async () => {
  await service.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  floods = await startFloods(service.ctx.now(), 3)
  const endpoints = floods.urls.map((url, i) => newEndpoint("base-sepolia", url, i + 1))
  service.ctx.chain.networks.splice(0, 1, { ...paperNetwork, endpoints })
  await service.ctx.db.deleteFrom("cursors").execute()
  await ensureCursor(service.ctx, network())
  return () => floods.stop()
})

const network = (): Network => service.ctx.chain.networks[0] ?? paperNetwork

async function paywall(): Promise<{ id: string; payTo: string }> {
  const { body } = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
  return { id: body.id, payTo: (await service.call("GET", `/api/paywalls/${body.id}`)).body.payTo }
}

async function round(): Promise<void> {
  service.advance(2_000)
  await service.ctx.db
    .updateTable("cursors")
    .set({ run_at: new Date(0) })
    .execute()
  await verifyRound(service.ctx, network())
}

/** Pays at another paywall and submits; returns how many rounds it takes until access is granted, at most 30. */
async function roundsToPay(): Promise<number> {
  const { id, payTo } = await paywall()
  const txHash = await floods.pay([{ from: BUYER, to: payTo, value: PRICE }])
  await service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address: BUYER })
  await floods.mine(3)
  for (let rounds = 1; rounds <= 30; rounds++) {
    await round()
    if ((await service.call("GET", `/api/paywalls/${id}/verify?address=${BUYER}`)).body.hasAccess) return rounds
  }
  throw new Error("not granted in 30 rounds")
}

async function alarms(): Promise<string[]> {
  service.advance(2_000)
  const { body } = await service.call("GET", "/readyz")
  return body.alarms.filter((words: string) => words.includes("RPC endpoint"))
}

/** Runs `work` until no stretch of it is too long, at most {@link TRIES} times; returns the longest stretch of the best try. */
async function shortestOf(
  work: () => Promise<unknown>,
  prepare: () => Promise<void> = async () => {},
): Promise<number> {
  let best = Number.POSITIVE_INFINITY
  for (let tries = 0; tries < TRIES && best >= MAX_MS; tries++) {
    await prepare()
    best = Math.min(best, (await stretchOf(work)).longestMs)
  }
  return best
}

describe("one endpoint of three answers", () => {
  it.each(shapes)(
    "%s: others are paid as soon, nothing holds the process, it is named, and asked less for what fills memory",
    async shape => {
      const quiet = await roundsToPay()
      await floods.lie(shape)
      const longestMs = await shortestOf(async () => {
        expect(await roundsToPay()).toBeLessThanOrEqual(2 * quiet)
        await round()
      })
      expect(longestMs).toBeLessThan(MAX_MS)
      // Nothing is wrong with blocks that are only large.
      if (shape === "odd numbers" || shape === "large blocks") return
      // What is no answer at all is a silence, and an alarm once it has lasted. A flood may be late as well: the endpoint is
      // asked again about the next payment, and then named. Without a payment it has no logs to repeat.
      const named = async () => (await alarms()).some(words => words.includes("endpoint 3 of 3"))
      for (let more = 0; more < 10 && !(await named()); more++) {
        service.advance(31_000)
        await roundsToPay()
      }
      expect(await named()).toBe(true)
      // A flood may also be late, and is then not waited for; what only fills memory is always noted.
      if (shape !== "small values" && shape !== "nesting") return
      const liar = network().endpoints[2]
      if (!liar) throw new Error("there are three")
      liar.silentUntil = 0
      await round()
      const before = await floods.requests()
      for (let i = 0; i < 3; i++) await round()
      expect((await floods.requests()) - before).toBe(0)
    },
  )
})

describe("dust to one address", () => {
  it("of 20,000 transfers delays nobody else's payment by more rounds than it takes, and holds nothing up", async () => {
    const quiet = await roundsToPay()
    let sent = 0
    const longestMs = await shortestOf(
      async () => expect(await roundsToPay()).toBeLessThanOrEqual(2 * quiet),
      async () => {
        const { payTo } = await paywall()
        await floods.dust(payTo, 20_000)
        sent += 20_000
      },
    )
    expect(longestMs).toBeLessThan(MAX_MS)
    // Each unit is in the books.
    const dust = async () =>
      (await service.ctx.db.selectFrom("transfers").select("id").where("value", "=", 1n).execute()).length
    for (let more = 0; more < 30 && (await dust()) < sent; more++) await round()
    expect(await dust()).toBe(sent)
  })

  it("is found where all endpoints pack their answers, and makes none of them useless", async () => {
    await floods.pack()
    const quiet = await roundsToPay()
    const { payTo } = await paywall()
    await floods.dust(payTo, 12_000)
    expect(await roundsToPay()).toBeLessThanOrEqual(2 * quiet)
    expect(network().endpoints.map(({ useless }) => useless)).toEqual([0, 0, 0])
    expect(await alarms()).toEqual([])
  })

  it("costs CPU time that grows as its bytes do", async () => {
    const cpuOf = async (count: number) => {
      const { payTo } = await paywall()
      await floods.dust(payTo, count, 7)
      await floods.mine(3)
      return await stretchOf(async () => {
        for (let i = 0; i < 4; i++) await round()
      })
    }
    await cpuOf(500)
    const small = await cpuOf(1_000)
    const large = await cpuOf(8_000)
    // Eight times as much; pairs would be 64 times.
    expect(large.cpuMs / small.cpuMs).toBeLessThan(16)
  })
})
