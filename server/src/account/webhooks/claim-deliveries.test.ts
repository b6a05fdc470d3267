// Claims: which deliveries are claimed, prefetched, given back and lost, and which an event creates.
import { array, assert, asyncProperty, boolean, constantFrom, record, uniqueArray } from "fast-check"
import { sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { type DeliveryRig, startDeliveryRig } from "../../../test/deliveries.ts"
import { until } from "../../../test/e2e/program.ts"
import { inTransaction } from "../../platform/context.ts"
import { claimDeliveries } from "./claim-deliveries.ts"
import { openDeliverer } from "./deliver-events.ts"
import { emit, type NewEvent } from "./emit.ts"
import { resend } from "./manage-endpoints.ts"
import { recordAttempts } from "./record-attempts.ts"
import { type EventType, eventTypes, subscribable } from "./webhook.ts"

let rig: DeliveryRig
beforeAll(async () => {
  rig = await startDeliveryRig()
})
afterAll(() => rig?.stop())
beforeEach(() => rig.begin())
afterEach(() => rig.end())

describe("an event that is emitted alone", () => {
  it("makes the same deliveries as beside another, whatever its kind and whoever subscribes, and only once", async () => {
    const type = constantFrom(...eventTypes.filter(each => !each.startsWith("settings.")))
    const endpoints = array(
      record({ events: uniqueArray(constantFrom(...subscribable), { minLength: 1 }), active: boolean() }),
      { maxLength: 4 },
    )
    const law = asyncProperty(type, endpoints, boolean(), async (type, endpoints, calls) => {
      const { db } = rig.service.ctx
      for (const table of ["events", "webhook_secrets", "webhooks"] as const) await db.deleteFrom(table).execute()
      const times = { created_at: new Date(), updated_at: new Date(), description: null }
      for (const [n, { events, active }] of endpoints.entries())
        await db
          .insertInto("webhooks")
          .values({
            id: `c${String(n).padStart(24, "0")}`,
            merchant_id: rig.merchantId,
            url: `https://shop.example/${n}`,
            events: JSON.stringify(events),
            active,
            ...times,
          })
          .execute()
      const event = (n: number): NewEvent<EventType> => ({
        merchantId: rig.merchantId,
        type,
        data: { n: 1 } as never,
        orderKey: "cs_1",
        dedupeKey: `${n}`,
        ...(calls ? { callbackUrl: "https://shop.example/call" } : {}),
      })
      const emitted = (...events: NewEvent<EventType>[]) => inTransaction(rig.service.ctx, ctx => emit(ctx, ...events))
      const [alone] = await emitted(event(1))
      const [beside] = await emitted(event(2), event(3))
      const [again = ""] = await emitted(event(1))
      expect(await db.selectFrom("events").select("id").where("id", "=", again).execute()).toEqual([])
      const made = async (id = "") =>
        (await db.selectFrom("deliveries").selectAll().where("event_id", "=", id).orderBy("webhook_id").execute()).map(
          ({ id, seq, event_id, run_at, created_at, updated_at, ...rest }) => rest,
        )
      const eventOf = async (id = "") => {
        const row = await db.selectFrom("events").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
        const { event, data } = JSON.parse(row.body)
        return { event, data, type: row.type, merchantId: row.merchant_id, traceparent: row.traceparent }
      }
      expect(await made(alone)).toEqual(await made(beside))
      expect(await eventOf(alone)).toEqual(await eventOf(beside))
    })
    await assert(law, { numRuns: 25 })
  })
})

describe("a claim", () => {
  it("takes a lane with nothing in flight before one of the same merchant that is being sent to, though it is not quick", async () => {
    const { ctx } = rig.service
    const to = await rig.receiver()
    const busy = await rig.register(`${to.url}/busy`, ["checkout.failed"])
    const idle = await rig.register(`${to.url}/idle`, ["checkout.expired"])
    const send = (type: EventType) => rig.send({ type: type as never })
    for (let n = 0; n < 3; n++) await send("checkout.failed")
    await send("checkout.expired")
    const job = {
      now: ctx.now(),
      leaseMs: 60_000,
      limit: 1,
      perLane: 10,
      room: 10,
      rooms: new Map(),
      afterLane: "",
      lanes: 9,
    }
    // For the prefetched ones of a lane that is not quick, room is kept.
    const taken = new Map([
      [busy.id, 4],
      [idle.id, 5],
    ])
    const { rows } = await claimDeliveries(ctx.db, { ...job, taken, inFlight: new Map([[busy.id, 4]]) })
    expect(rows.map(({ lane }) => lane)).toEqual([idle.id])
  })

  it("finds what a process emitted, or sent again, whose clock is ahead", async () => {
    const { ctx } = rig.service
    const to = await rig.receiver()
    await rig.register(to.url)
    const ahead = { ...ctx, now: () => new Date(ctx.now().getTime() + 3_600_000) }
    const event = { merchantId: rig.merchantId, type: "checkout.failed" as const, orderKey: "cs_1", data: {} as never }
    const callbackUrl = `${to.url}/callback`
    await inTransaction(ahead, ctx => emit(ctx, { ...event, callbackUrl }))
    await inTransaction(ahead, ctx => emit(ctx, { ...event, type: "checkout.session.completed" }))
    await inTransaction(ahead, ctx =>
      emit(ctx, { ...event, callbackUrl, orderKey: "cs_2" }, { ...event, callbackUrl, orderKey: "cs_3" }),
    )
    await rig.deliver()
    expect(to.received).toHaveLength(1 + 4)
    const rows = await ctx.db.selectFrom("deliveries").select("id").execute()
    for (const { id } of rows) await resend(ahead, rig.merchantId, id)
    await rig.deliver()
    expect(to.received).toHaveLength(1 + 8)
  })
})

describe("prefetched", () => {
  const HELD = 10
  const claimed = () =>
    rig.service.ctx.db.selectFrom("deliveries").selectAll().where("claim_id", "is not", null).execute()
  /** Only this clock makes a claimed delivery too old, however long the test takes. */
  let clockMs: number
  beforeEach(() => {
    clockMs = performance.now()
    const clock = vi.spyOn(performance, "now").mockImplementation(() => clockMs)
    rig.stops.push(() => clock.mockRestore())
  })

  /** An endpoint with its maximum of concurrent requests in progress until `release`, and five more claimed. */
  async function fiveAhead(signal = rig.service.ctx.signal) {
    const to = await rig.receiver()
    await rig.register(to.url)
    const held = Promise.withResolvers<void>()
    to.answer(response => void held.promise.then(() => response.writeHead(200).end()))
    for (let i = 0; i < HELD + 5; i++) await rig.send()
    const deliverer = openDeliverer({ ...rig.service.ctx, signal }, rig.sender)
    expect(await deliverer.round()).toBe(HELD + 5)
    await to.got(1 + HELD)
    return { to, deliverer, release: held.resolve }
  }

  it("starts when another ends, without another claim, and never beyond its endpoint's concurrency limit", async () => {
    const { to, deliverer, release } = await fiveAhead()
    expect(await claimed()).toHaveLength(HELD + 5)
    expect(to.received).toHaveLength(1 + HELD)
    release()
    await deliverer.idle()
    expect(to.received).toHaveLength(1 + HELD + 5)
    expect(await claimed()).toEqual([])
  })

  it("is given back when the process stops, without an attempt", async () => {
    const stop = new AbortController()
    const { to, deliverer, release } = await fiveAhead(stop.signal)
    stop.abort()
    const stopped = deliverer.idle()
    await until("the others are given back", async () => (await claimed()).length === HELD)
    release()
    await stopped
    const rows = await rig.service.ctx.db.selectFrom("deliveries").selectAll().where("status", "=", "pending").execute()
    expect(rows.map(({ attempts, claim_id, lease_until }) => ({ attempts, claim_id, lease_until }))).toEqual(
      Array(5).fill({ attempts: 0, claim_id: null, lease_until: null }),
    )
    expect(to.received).toHaveLength(1 + HELD)
  })

  it("is given back when it has waited too long, and then no more is claimed for that endpoint than is sent", async () => {
    const { deliverer, release } = await fiveAhead()
    clockMs += 2_000
    await deliverer.round()
    await until("the others are given back", async () => (await claimed()).length === HELD)
    expect(await deliverer.round()).toBe(0)
    release()
    await deliverer.idle()
  })

  it("does not exist for an endpoint that failed", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    to.answer(500)
    await rig.send()
    await rig.deliver()
    for (let i = 0; i < HELD + 5; i++) await rig.send()
    expect(await rig.deliverer.round()).toBe(HELD)
    await rig.deliverer.idle()
  })
})

describe("leases", () => {
  it("a worker that lost its lease changes nothing", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    await rig.send()
    const { db } = rig.service.ctx
    await db.updateTable("deliveries").set({ claim_id: "11111111-1111-4111-8111-111111111111" }).execute()
    const [stale] = await db.selectFrom("deliveries").selectAll().execute()
    await db.updateTable("deliveries").set({ claim_id: "22222222-2222-4222-8222-222222222222" }).execute()
    const before = await db.selectFrom("deliveries").selectAll().execute()
    for (const error of [null, "answered 500"]) {
      const attempt = { status: 500, error, answer: "", headers: null, durationMs: 1, retryAfterMs: undefined }
      const result = { delivery: stale as never, webhook: undefined, startedAt: new Date(), attempt }
      expect(await recordAttempts(rig.service.ctx, [result])).toBe(0)
    }
    expect(await db.selectFrom("deliveries").selectAll().execute()).toEqual(before)
    expect(await db.selectFrom("delivery_attempts").selectAll().execute()).toEqual([])
  })

  it.runIf(onPostgres)(
    "workers whose batches have the same failing endpoints in another order wait in one order",
    async () => {
      const { ctx } = rig.service
      const to = await rig.receiver()
      const ids = [(await rig.register(`${to.url}/1`)).id, (await rig.register(`${to.url}/2`)).id].sort()
      await rig.send()
      const claim = {
        now: ctx.now(),
        leaseMs: 60_000,
        limit: 2,
        perLane: 1,
        taken: new Map(),
        inFlight: new Map(),
        room: 1_000,
        rooms: new Map(),
        afterLane: "",
        lanes: 9,
      }
      const { rows } = await claimDeliveries(ctx.db, claim)
      const attempt = {
        status: 500,
        error: "answered 500",
        answer: "",
        headers: null,
        durationMs: 1,
        retryAfterMs: undefined,
      }
      const results = rows.map(row => ({
        delivery: row,
        webhook: { id: row.webhook_id ?? "", url: row.target.endpoint?.url ?? "", failing: true },
        startedAt: new Date(),
        attempt,
      }))
      const lastFirst = results.sort((a, b) => (a.webhook.id < b.webhook.id ? 1 : -1))
      const held = (id = "") => sql`select from webhooks where id = ${id} for update skip locked`.execute(ctx.db)
      const recording = await inTransaction(ctx, async other => {
        await sql`select from webhooks where id = ${ids[1]} for update`.execute(other.db)
        const recording = recordAttempts(ctx, lastFirst)
        await until("the first endpoint is locked", async () => (await held(ids[0])).rows.length === 0, 20_000)
        return { recording }
      })
      expect(await recording.recording).toBe(2)
    },
  )

  it(`rivals send each event once (${onPostgres ? "several connections" : "one connection"})`, async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    for (let i = 0; i < 40; i++) await rig.send()
    const rivals = Array.from({ length: 4 }, () => openDeliverer(rig.service.ctx, rig.sender))
    await Promise.all(
      rivals.map(async rival => {
        do await rival.idle()
        while ((await rival.round()) > 0)
      }),
    )
    await rig.deliver()
    const keys = to.received.slice(1).map(({ headers }) => headers["idempotency-key"])
    expect(keys).toHaveLength(40)
    expect(new Set(keys).size).toBe(40)
  })
})
