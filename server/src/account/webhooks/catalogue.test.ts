// What a developer of a receiver is shown: every event, its example sent, the endpoint's numbers, and what was sent.
import { Ajv2020 } from "ajv/dist/2020.js"
import { sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Received, type Receiver, startReceiver } from "../../../test/receiver.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { openDeliverer } from "./deliver-events.ts"
import { openSender, type Sender } from "./send.ts"
import { eventTypes } from "./webhook.ts"

const as = "shop"
const base = "/api/console/webhooks"
const HOUR = 3_600_000

let service: TestService
let to: Receiver
let sender: Sender
let merchantId: string
beforeAll(async () => {
  service = await startService()
  sender = openSender(service.ctx.settings.webhooks)
})
afterAll(async () => {
  await sender.close()
  await service.stop()
})
beforeEach(async () => {
  await service.empty()
  merchantId = await service.merchant(as)
  await service.ctx.db.deleteFrom("events").execute()
  to = await startReceiver()
})
afterEach(() => to.stop())

const get = (url: string) => service.call("GET", url, undefined, { as })
const post = (url: string, body: unknown = {}) => service.call("POST", url, body, { as })
const register = async (events = ["*"]) => (await post(base, { url: to.url, events })).body.data
async function deliver(): Promise<void> {
  const deliverer = openDeliverer(service.ctx, sender)
  do await deliverer.idle()
  while ((await deliverer.round()) > 0)
}

describe("GET /api/console/event-types", () => {
  it("has every event with an example that its schema accepts, and a key with `read` reads it", async () => {
    const { body: made } = await post("/api/console/api-keys", { name: "reader", scopes: ["read"] })
    const headers = { "x-api-key": made.key }
    const { status, body } = await service.call("GET", "/api/console/event-types", undefined, { headers })
    expect(status).toBe(200)
    expect(body.data.map(({ type }: { type: string }) => type)).toEqual([...eventTypes])
    const ajv = new Ajv2020({ strict: false, validateFormats: false })
    for (const { type, schema, example, summary, recipients } of body.data) {
      expect(ajv.validate(schema, example), `${type}: ${ajv.errorsText()}`).toBe(true)
      expect(example.event).toBe(type)
      expect([summary.length > 10, recipients.length > 10]).toEqual([true, true])
    }
  })
})

describe("POST /api/console/webhooks/:id/test with an event", () => {
  it("sends each event's example, marked, signed like any event, and about no object", async () => {
    const { id, secret } = await register(["checkout.confirmed"])
    to.received.length = 0
    for (const event of eventTypes) {
      const { status, body } = await post(`${base}/${id}/test`, { event })
      expect([status, body.data?.event, body.data?.sessionId]).toEqual([201, event, null])
    }
    await deliver()
    const { default: Stripe } = await import("stripe")
    const types = to.received.map(({ body, headers }) => {
      Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret)
      const event = JSON.parse(body)
      expect(event.test).toBe(event.event === "ping" ? undefined : true)
      if ("merchantId" in event.data) expect(event.data.merchantId).toBe(merchantId)
      return event.event
    })
    expect(types.sort()).toEqual([...eventTypes].sort())
  })

  it("refuses an event that there is not, and writes nothing", async () => {
    const { id } = await register()
    await service.ctx.db.deleteFrom("events").execute()
    const { status, body } = await post(`${base}/${id}/test`, { event: "checkout.paid" })
    expect([status, body.error]).toEqual([400, "VALIDATION_ERROR"])
    expect(await service.ctx.db.selectFrom("events").select("id").execute()).toEqual([])
  })

  it("does not use up the notices of changes that a merchant may cause", async () => {
    const { id } = await register()
    await sql`insert into events (id, merchant_id, type, dedupe_key, order_key, body, created_at)
      select 'evt_' || lpad(n::text, 24, '0'), ${merchantId}, 'settings.webhook_changed', 'test evt_' || n, 'evt_' || n, '{}', ${service.ctx.now()}
      from generate_series(1, 700) n`.execute(service.ctx.db)
    await sql`insert into deliveries (id, event_id, merchant_id, webhook_id, lane, order_key, status, run_at, created_at, updated_at)
      select 'dlv_' || right(e.id, 24), e.id, e.merchant_id, ${id}, ${id}, e.order_key, 'delivered', e.created_at, e.created_at, e.created_at
      from events e where e.dedupe_key like 'test %'`.execute(service.ctx.db)
    expect((await post(`${base}/${id}/roll-secret`)).status).toBe(200)
    // The same number of real changes is refused.
    await sql`update events set dedupe_key = id`.execute(service.ctx.db)
    expect((await post(`${base}/${id}/roll-secret`)).status).toBe(429)
  })
})

describe("the headers of an attempt", () => {
  it("are those that were sent, with eight characters of each signature", async () => {
    const { id, secret } = await register()
    to.received.length = 0
    const { body } = await post(`${base}/${id}/test`, { event: "payment.refunded" })
    await deliver()
    const sent = (to.received[0] as Received).headers
    const [{ headers }] = (await get(`/api/console/deliveries/${body.data.id}`)).body.data.log
    expect(Object.keys(headers).sort()).toEqual(
      Object.keys(sent)
        .filter(name => !["host", "connection", "content-length"].includes(name))
        .sort(),
    )
    for (const name of ["content-type", "user-agent", "idempotency-key", "webhook-id", "webhook-timestamp"])
      expect(headers[name]).toBe(sent[name])
    expect(headers["service-signature"]).toBe(`${sent["service-signature"]?.slice(0, `t=1700000000,v1=`.length + 8)}…`)
    expect(headers["x-service-signature"]).toBe(`${sent["x-service-signature"]?.slice(0, "sha256=".length + 8)}…`)
    expect(headers["webhook-signature"]).toBe(`${sent["webhook-signature"]?.slice(0, "v1,".length + 8)}…`)
    expect(JSON.stringify(headers)).not.toContain(secret.slice(6, 20))
  })

  it("cut every signature while two secrets sign", async () => {
    const { id } = await register()
    await post(`${base}/${id}/roll-secret`)
    const { body } = await post(`${base}/${id}/test`)
    await deliver()
    const [{ headers }] = (await get(`/api/console/deliveries/${body.data.id}`)).body.data.log
    expect(headers["service-signature"]).toMatch(/^t=\d+,v1=[0-9a-f]{8}…,v1=[0-9a-f]{8}…$/)
    expect(headers["webhook-signature"]).toMatch(/^v1,[\w+/]{8}… v1,[\w+/]{8}…$/)
  })
})

describe("GET /api/console/webhooks/:id/stats", () => {
  // The hour must not end between what is written and what is read.
  beforeEach(() => {
    if (service.ctx.now().getTime() % HOUR > HOUR / 2) service.advance(HOUR / 2)
  })

  /** Deliveries of one endpoint at this age, each with one attempt that took this long. */
  async function add(
    id: string,
    n: number,
    hoursAgo: number,
    status: "delivered" | "failed",
    ms: number,
  ): Promise<void> {
    const at = new Date(service.ctx.now().getTime() - hoursAgo * HOUR)
    const name = `${hoursAgo}x${status}x${ms}`
    await sql`with d as (insert into deliveries (id, event_id, merchant_id, webhook_id, lane, order_key, status, attempts, run_at, created_at, updated_at)
        select 'dlv_' || ${name} || n, 'evt_' || ${name} || n, ${merchantId}, ${id}, ${id}, 'x', ${status}, 1, ${at}, ${at}, ${at}
        from generate_series(1, ${n}::int) n returning id)
      insert into delivery_attempts (delivery_id, started_at, duration_ms, status) select id, ${at}, ${ms}, 200 from d`.execute(
      service.ctx.db,
    )
  }

  it("counts by hour and by day, with the periods in which nothing was sent", async () => {
    const { id } = await register()
    await add(id, 10, 0, "delivered", 20)
    await add(id, 9, 3, "delivered", 30)
    await add(id, 1, 3, "failed", 5_000)
    await add(id, 4, 20 * 24, "failed", 100)
    const { status, body } = await get(`${base}/${id}/stats`)
    expect(status).toBe(200)
    const { by, since, periods } = body.data
    expect([by, periods.length, since]).toEqual(["hour", 48, periods[0].from])
    expect(periods.at(-1)).toMatchObject({ delivered: 10, failed: 0, attempts: 10, p50Ms: 20, p95Ms: 20 })
    expect(periods.at(-4)).toMatchObject({ delivered: 9, failed: 1, attempts: 10, p50Ms: 30, p95Ms: 5_000 })
    expect(periods.at(-2)).toMatchObject({ delivered: 0, failed: 0, pending: 0, skipped: 0, attempts: 0, p50Ms: null })
    const days = (await get(`${base}/${id}/stats?by=day`)).body.data.periods
    expect(days).toHaveLength(30)
    expect(days.reduce((sum: number, { failed }: { failed: number }) => sum + failed, 0)).toBe(5)
    expect(days.at(-21)).toMatchObject({ failed: 4, p95Ms: 100 })
  })

  it("counts the newest 20,000 and says since when", async () => {
    const { id } = await register()
    await add(id, 15_000, 1, "delivered", 20)
    await add(id, 15_000, 5, "delivered", 20)
    const { since, periods } = (await get(`${base}/${id}/stats`)).body.data
    expect(periods.reduce((sum: number, { delivered }: { delivered: number }) => sum + delivered, 0)).toBe(20_000)
    expect(Date.parse(since)).toBeGreaterThan(Date.parse(periods[0].from))
    const oldest = sql<{
      at: Date
    }>`select min(created_at) as at from deliveries where webhook_id = ${id} and id like 'dlv_5x%'`
    expect(since).toBe((await oldest.execute(service.ctx.db)).rows[0]?.at.toISOString())
  })

  it("404 for another merchant's", async () => {
    const { id } = await register()
    await service.merchant("other")
    expect((await service.call("GET", `${base}/${id}/stats`, undefined, { as: "other" })).status).toBe(404)
    expect((await service.call("GET", `${base}/${id}/stats?by=week`, undefined, { as })).status).toBe(400)
  })
})
