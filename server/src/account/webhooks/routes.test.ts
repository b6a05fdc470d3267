import { sql } from "kysely"
import Stripe from "stripe"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Received, type Receiver, startReceiver } from "../../../test/receiver.ts"
import { PAYOUT_ADDRESS, startService, type TestService } from "../../../test/service.ts"
import { inTransaction } from "../../platform/context.ts"
import { openDeliverer } from "./deliver-events.ts"
import { emit } from "./emit.ts"
import { forgetExpiredSecrets } from "./manage-secrets.ts"
import { openSender, type Sender } from "./send.ts"
import { skipRest } from "./skip-deliveries.ts"

const as = "shop"
const HOUR = 3_600_000

let service: TestService
let merchantId: string
let to: Receiver
let sender: Sender
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

const get = (url: string, who = as) => service.call("GET", url, undefined, { as: who })
const post = (url: string, body: unknown = {}, who = as) => service.call("POST", url, body, { as: who })
const put = (url: string, body: unknown) => service.call("PUT", url, body, { as })
const remove = (url: string) => service.call("DELETE", url, undefined, { as })
const base = "/api/console/webhooks"
const register = async (events = ["*"]) => (await post(base, { url: to.url, events })).body.data
const rows = async () => (await service.ctx.db.selectFrom("webhooks").selectAll().execute()).length

const send = (n: number) =>
  inTransaction(service.ctx, ctx =>
    emit(ctx, { merchantId, type: "subscription.renewal.created", orderKey: `cs_${n}`, data: { n } as never }),
  )
const callBack = (n: number) =>
  inTransaction(service.ctx, ctx =>
    emit(ctx, {
      merchantId,
      type: "subscription.renewal.created",
      orderKey: `cs_${`${n}`.repeat(24)}`,
      data: { n } as never,
      callbackUrl: `${to.url}/own`,
    }),
  )
async function deliver(): Promise<void> {
  const deliverer = openDeliverer(service.ctx, sender)
  do await deliverer.idle()
  while ((await deliverer.round()) > 0)
}

describe("POST /api/console/webhooks", () => {
  it("201: the documented shape, and a ping that the secret in the answer verifies", async () => {
    const { status, body } = await post(base, { url: to.url, events: ["*", "paywall.granted", "*"] })
    expect(status).toBe(201)
    expect(body).toEqual({
      data: {
        id: expect.stringMatching(/^c[a-z0-9]{24}$/),
        url: to.url,
        secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
        events: ["*", "paywall.granted"],
        active: true,
      },
    })
    const ping = to.received[0] as Received
    expect(JSON.parse(ping.body)).toMatchObject({ event: "ping", data: { webhookId: body.data.id } })
    Stripe.webhooks.constructEvent(ping.body, ping.headers["service-signature"] ?? "", body.data.secret)
  })

  it("says in a header when only WEBHOOK_ALLOW_CIDRS lets the address be reached, by name too", async () => {
    for (const url of [to.url, to.url.replace("127.0.0.1", "localhost")]) {
      const { status, headers } = await post(base, { url, events: ["*"] })
      expect(status).toBe(201)
      expect(headers["cache-control"]).toBe("no-store")
      expect(headers["x-webhook-notice"]).toBe("points to a private address that only WEBHOOK_ALLOW_CIDRS allows")
    }
  })

  it("the secret is only in this answer, and in no row", async () => {
    const { id, secret } = await register()
    await post(`${base}/${id}/test`)
    await deliver()
    const answers = [await get(base), await get(`${base}/${id}`), await put(`${base}/${id}`, { active: true })]
    answers.push(
      await get(`${base}/${id}/deliveries`),
      await get("/api/console/events"),
      await get("/api/console/settings"),
    )
    expect(JSON.stringify(answers.map(({ body }) => body))).not.toContain(secret)
    const stored = await service.ctx.db.selectFrom("webhook_secrets").selectAll().execute()
    expect(JSON.stringify(stored.map(({ sealed }) => sealed))).not.toContain(secret.slice(6))
  })

  it.each([400, 401, 403, 405, 429, 500])("201 though the ping is answered %d: there is a receiver", async status => {
    to.answer(status)
    expect((await post(base, { url: to.url, events: ["*"] })).status).toBe(201)
  })

  it.each([301, 302, 307, 404, 410, 502, 503, 504])(
    "422 URL_UNREACHABLE for %d, and nothing is written",
    async status => {
      to.answer(response =>
        response.writeHead(status, status < 400 ? { location: "https://shop.example/new" } : {}).end(),
      )
      const { status: answered, body } = await post(base, { url: to.url, events: ["*"] })
      expect([answered, body.error]).toEqual([422, "URL_UNREACHABLE"])
      expect(body.message).toContain(status < 400 ? "https://shop.example/new" : `answered ${status}`)
      expect(await rows()).toBe(0)
    },
  )

  it("422 for an address that hangs and for one without a receiver", async () => {
    to.answer(() => {})
    const { webhooks } = service.ctx.settings
    service.ctx.settings.webhooks = { ...webhooks, probeTimeoutMs: 1_000 }
    const { body: hanging } = await post(base, { url: to.url, events: ["*"] })
    service.ctx.settings.webhooks = webhooks
    expect(hanging).toMatchObject({
      error: "URL_UNREACHABLE",
      message: "The service could not reach the webhook's URL: no answer within 1 s.",
    })
    const { body } = await post(base, { url: "http://127.0.0.1:1/", events: ["*"] })
    expect(body.message).toBe("The service could not reach the webhook's URL: the connection was refused.")
    expect(await rows()).toBe(0)
  })

  it.each([
    [{ events: ["*"] }, "url"],
    [{ url: "hook", events: ["*"] }, "url"],
    [{ url: "ftp://shop.example", events: ["*"] }, "url"],
    [{ url: "http://u:p@shop.example", events: ["*"] }, "url"],
    [{ url: "http://shop.example/#a", events: ["*"] }, "url"],
    [{ url: "http://10.0.0.1/", events: ["*"] }, "url"],
    [{ url: `http://shop.example/${"x".repeat(2_048)}`, events: ["*"] }, "url"],
    [{ url: "http://shop.example" }, "events"],
    [{ url: "http://shop.example", events: [] }, "events"],
    [{ url: "http://shop.example", events: ["checkout.complete"] }, "events.0"],
    [{ url: "http://shop.example", events: ["*", "ping"] }, "events.1"],
    [{ url: "http://shop.example", events: ["*"], active: false }, "active"],
  ])("400 for %j, and no request is sent", async (body, path) => {
    const answer = await post(base, body)
    expect(answer).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR", details: [{ path }] } })
    expect([await rows(), to.connections()]).toEqual([0, 0])
  })

  it("400 for one more than a hundred", async () => {
    const { id } = await register()
    const row = await service.ctx.db.selectFrom("webhooks").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    const more = Array.from({ length: 99 }, (_, i) => ({
      ...row,
      id: `c${String(i).padStart(24, "0")}`,
      events: JSON.stringify(row.events),
    }))
    await service.ctx.db.insertInto("webhooks").values(more).execute()
    expect((await post(base, { url: to.url, events: ["*"] })).status).toBe(400)
    expect(await rows()).toBe(100)
  })
})

describe("reading, changing and deleting", () => {
  it("GET lists in the documented shape, newest first", async () => {
    const first = await register()
    service.advance(1_000)
    const second = await register(["checkout.failed"])
    const { body } = await get(base)
    expect(body).toEqual({
      data: {
        webhooks: [
          {
            id: second.id,
            url: to.url,
            events: ["checkout.failed"],
            active: true,
            createdAt: expect.stringMatching(/Z$/),
          },
          { id: first.id, url: to.url, events: ["*"], active: true, createdAt: expect.stringMatching(/Z$/) },
        ],
      },
      total: 2,
    })
    expect((await get(base, "rival")).body).toEqual({ data: { webhooks: [] }, total: 0 })
  })

  it("PUT changes the given fields; a new address is tried first", async () => {
    const { id } = await register()
    const other = await startReceiver()
    const { status, body } = await put(`${base}/${id}`, {
      url: other.url,
      events: ["subscription.renewal.created"],
      description: "Shop",
    })
    expect(status).toBe(200)
    expect(body.data).toEqual({
      id,
      merchantId,
      url: other.url,
      events: ["subscription.renewal.created"],
      active: true,
      description: "Shop",
      disabledReason: null,
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
    })
    expect((await get(`${base}/${id}`)).body).toEqual(body)
    expect(other.received).toHaveLength(1)
    await other.stop()
    const refused = await put(`${base}/${id}`, { url: "http://127.0.0.1:1/", description: null })
    expect(refused.body.error).toBe("URL_UNREACHABLE")
    expect((await get(`${base}/${id}`)).body).toEqual(body)
    expect((await put(`${base}/${id}`, { url: "http://10.0.0.1/" })).status).toBe(400)
  })

  it("DELETE answers success once, then 404; pending deliveries are not sent, and can still be read", async () => {
    const { id } = await register()
    await send(1)
    expect((await remove(`${base}/${id}`)).body).toEqual({ data: { success: true } })
    for (const answer of [await remove(`${base}/${id}`), await get(`${base}/${id}`), await post(`${base}/${id}/test`)])
      expect(answer).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    await send(2)
    await deliver()
    expect(eventsTo(to)).toEqual(["settings.webhook_changed"])
    const [delivery] = await service.ctx.db.selectFrom("deliveries").selectAll().orderBy("seq").execute()
    expect((await get(`/api/console/deliveries/${delivery?.id}`)).body.data).toMatchObject({ status: "skipped" })
    expect((await post(`/api/console/deliveries/${delivery?.id}/resend`)).status).toBe(404)
    const ofWebhook = () =>
      service.ctx.db.selectFrom("webhook_secrets").select("expires_at").where("webhook_id", "is not", null).execute()
    // A process whose clock is two days ahead takes no secret from what the others still sign.
    await forgetExpiredSecrets({ ...service.ctx, now: () => new Date(service.ctx.now().getTime() + 48 * HOUR) })
    expect(await ofWebhook()).toHaveLength(1)
    const past = new Date(Date.now() - 1_000)
    await service.ctx.db
      .updateTable("webhook_secrets")
      .set({ expires_at: past })
      .where("expires_at", "is not", null)
      .execute()
    await forgetExpiredSecrets(service.ctx)
    expect(await ofWebhook()).toEqual([])
  })
})

describe("settings.webhook_changed", () => {
  const A = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
  const B = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
  const payout = async (payoutAddress: string | undefined) =>
    expect((await put("/api/console/settings", { payoutAddress })).status).toBe(200)
  const PAYOUT = "settings.payout_address_changed"
  const CHANGED = "settings.webhook_changed"
  let moved: Receiver
  beforeEach(async () => {
    moved = await startReceiver()
  })
  afterEach(() => moved.stop())

  it.each([
    ["moved", (id: string) => put(`${base}/${id}`, { url: moved.url }), []],
    ["paused", (id: string) => put(`${base}/${id}`, { active: false }), []],
    ["events_changed", (id: string) => put(`${base}/${id}`, { events: ["checkout.confirmed"] }), [PAYOUT]],
    ["deleted", (id: string) => remove(`${base}/${id}`), []],
    ["secret_rolled", (id: string) => post(`${base}/${id}/roll-secret`), [PAYOUT]],
  ] as const)("of an endpoint that is %s reaches its old address, as do earlier events", async (change, act, later) => {
    const other = await startReceiver()
    await post(base, { url: other.url, events: ["checkout.failed"] })
    const { id, secret } = await register(["checkout.failed"])
    await payout(A)
    expect((await act(id)).status).toBe(200)
    await payout(B)
    await deliver()
    expect(eventsTo(to)).toEqual([PAYOUT, CHANGED, ...later])
    for (const received of to.received.slice(1)) expect(good(received, secret)).toBe(true)
    const newUrl = change === "moved" ? moved.url : null
    expect(JSON.parse(to.received[2]?.body ?? "").data).toEqual({
      merchantId,
      webhookId: id,
      change,
      url: to.url,
      newUrl,
    })
    expect(eventsTo(other)).toEqual([CHANGED, PAYOUT, CHANGED, PAYOUT])
    // Paths and queries may have secrets: the others are sent origins.
    expect(JSON.parse(other.received[3]?.body ?? "").data).toEqual({
      merchantId,
      webhookId: id,
      change,
      url: new URL(to.url).origin,
      newUrl: newUrl && new URL(newUrl).origin,
    })
    expect(eventsTo(moved)).toEqual(change === "moved" ? [PAYOUT] : [])
    await other.stop()
  })

  it("of an endpoint that is added, and of the account's secret, reaches those that were there", async () => {
    await register(["checkout.failed"])
    const { id } = (await post(base, { url: `${moved.url}/secret`, events: ["*"] })).body.data
    expect((await post("/api/console/settings/webhook-secret")).status).toBe(200)
    await deliver()
    const data = to.received.slice(1).map(({ body }) => JSON.parse(body).data)
    expect(data).toEqual([
      { merchantId, webhookId: id, change: "added", url: new URL(moved.url).origin, newUrl: null },
      { merchantId, webhookId: null, change: "account_secret_rolled", url: null, newUrl: null },
    ])
    expect(eventsTo(moved)).toEqual([CHANGED])
  })

  it("is sent to 30 endpoints at one address in one lane, but for the first of them, each signed by its own secret, and 600 times a minute at most", async () => {
    const endpoints = [await register(["checkout.failed"])]
    for (let i = 1; i < 30; i++) {
      service.advance(61_000)
      endpoints.push((await post(base, { url: to.url, events: ["checkout.failed"] })).body.data)
    }
    service.advance(61_000)
    await service.ctx.db.deleteFrom("deliveries").execute()
    const answers = []
    for (let i = 0; i < 25; i++) answers.push(await post(`${base}/${endpoints[0]?.id}/roll-secret`))
    expect(answers.map(({ status }) => status)).toEqual([...Array(20).fill(200), ...Array(5).fill(429)])
    expect(answers.at(-1)?.body).toMatchObject({ error: "RATE_LIMITED" })
    const rows = await service.ctx.db.selectFrom("deliveries").select("lane").execute()
    expect([rows.length, new Set(rows.map(({ lane }) => lane)).size]).toEqual([600, 2])
    const before = to.received.length
    await deliver()
    const sent = to.received.slice(before)
    expect(sent.length).toBe(600)
    for (const { secret } of endpoints.slice(1)) expect(sent.filter(each => good(each, secret))).toHaveLength(20)
    service.advance(61_000)
    expect((await post(`${base}/${endpoints[0]?.id}/roll-secret`)).status).toBe(200)
  })

  it("is not refused for an address that is withdrawn, however many came before", async () => {
    await register(["checkout.failed"])
    const pending = { pending_address: A.toLowerCase() as never, pending_at: new Date(8e12) }
    await service.ctx.db.updateTable("payout_addresses").set(pending).execute()
    service.advance(61_000)
    const notice = {
      merchantId,
      type: "settings.split_changed" as const,
      orderKey: "settings splits",
      data: {} as never,
    }
    await inTransaction(service.ctx, ctx => emit(ctx, ...Array(650).fill(notice)))
    const refused = await put("/api/console/settings", { payoutAddress: B })
    expect([refused.status, refused.body.message]).toEqual([429, expect.stringContaining("revoke your API keys")])
    await payout(PAYOUT_ADDRESS)
    expect((await get("/api/console/settings")).body.pendingPayoutAddresses).toEqual({})
  })

  it("waits for no endpoint that somebody registered beside it, once the day after its registration is over", async () => {
    const { db, now } = { ...service.ctx }
    const ids = []
    for (let i = 0; i < 4; i++) {
      service.advance(61_000)
      ids.push((await post(base, { url: `${to.url}/${i}`, events: ["*"] })).body.data.id)
    }
    const [first, old, ...others] = ids
    const dayAgo = new Date(now().getTime() - 24 * HOUR - 1)
    await db.updateTable("webhooks").set({ created_at: dayAgo }).where("id", "in", [first, old]).execute()
    await db.deleteFrom("deliveries").execute()
    service.advance(61_000)
    await payout(A)
    const rows = await db.selectFrom("deliveries").select(["webhook_id", "lane"]).execute()
    const laneOf = (id: string) => rows.find(row => row.webhook_id === id)?.lane
    expect(new Set([first, old, others[0]].map(laneOf)).size).toBe(3)
    expect(laneOf(others[1])).toBe(laneOf(others[0]))
    // A day later what still waits moves along: the newer notice must not overtake it.
    await db.updateTable("webhooks").set({ created_at: dayAgo }).execute()
    service.advance(61_000)
    await payout(B)
    const later = await db.selectFrom("deliveries").select(["webhook_id", "lane"]).execute()
    for (const id of others)
      expect(new Set(later.filter(row => row.webhook_id === id).map(row => row.lane)).size).toBe(1)
    expect(new Set(later.map(row => row.lane)).size).toBe(4)
  })

  it("is refused 600 times a minute however many changes come at once, and never where its change is alone", async () => {
    const ids = []
    for (let i = 0; i < 40; i++) {
      service.advance(61_000)
      ids.push((await post(base, { url: to.url, events: ["checkout.failed"] })).body.data.id)
    }
    service.advance(61_000)
    const emitted = () => service.ctx.db.selectFrom("deliveries").select("id").execute()
    await service.ctx.db.deleteFrom("deliveries").execute()
    const answers = await Promise.all(ids.map(id => post(`${base}/${id}/roll-secret`)))
    const statuses = answers.map(({ status }) => status)
    expect([statuses.filter(status => status === 200).length, (await emitted()).length]).toEqual([15, 600])
    expect(statuses.filter(status => status === 429)).toHaveLength(25)
    service.advance(61_000)
    // As for one payout address on each of many networks.
    await inTransaction(service.ctx, async ctx => {
      for (let i = 0; i < 20; i++)
        await emit(ctx, { merchantId, type: "settings.split_changed", orderKey: "settings splits", data: {} as never })
    })
    expect(await emitted()).toHaveLength(1_400)
  })

  it("is emitted once per change, also for one that is already paused", async () => {
    const { id } = await register()
    await put(`${base}/${id}`, { active: false })
    await put(`${base}/${id}`, { active: false, url: to.url, description: "x", events: ["*"] })
    await put(`${base}/${id}`, { url: moved.url })
    await put(`${base}/${id}`, { active: true })
    await deliver()
    expect(eventsTo(to)).toEqual([CHANGED, CHANGED])
    expect(eventsTo(moved)).toEqual([])
  })

  it("is retried for an endpoint that was deleted, and says nothing of one that was moved", async () => {
    const { id } = await register()
    to.answer(500)
    await remove(`${base}/${id}`)
    await deliver()
    to.answer(200)
    service.advance(2 * 60_000)
    await deliver()
    expect(eventsTo(to)).toEqual([CHANGED, CHANGED])

    const { id: second } = await register()
    to.answer(410)
    await put(`${base}/${second}`, { url: moved.url })
    await deliver()
    expect((await get(`${base}/${second}`)).body.data).toMatchObject({ active: true, disabledReason: null })
  })

  it.each([
    [410, 0],
    [500, 6 * 24 * HOUR],
  ])(
    "an answer %i of the address that an endpoint left while it waited says nothing of it",
    async (status, failingMs) => {
      const { id } = await register()
      const failing_since = failingMs > 0 ? new Date(service.ctx.now().getTime() - failingMs) : null
      await service.ctx.db.updateTable("webhooks").set({ failing_since }).execute()
      const held = Promise.withResolvers<void>()
      to.answer(response => void held.promise.then(() => response.writeHead(status).end()))
      await send(1)
      const delivered = deliver()
      await to.got(2)
      await put(`${base}/${id}`, { url: moved.url })
      held.resolve()
      await delivered
      // Nor do the failures before the move count at the new address.
      moved.answer(500)
      await send(2)
      await deliver()
      expect((await get(`${base}/${id}`)).body.data).toMatchObject({ active: true, disabledReason: null })
    },
  )

  it("stays at its old address when it is resent before it has ended, and goes to the new one afterwards", async () => {
    const { id } = await register()
    await put(`${base}/${id}`, { url: moved.url })
    const delivery = (await get(`${base}/${id}/deliveries`)).body.data[0]
    expect(delivery).toMatchObject({ url: to.url, status: "pending" })
    await post(`/api/console/deliveries/${delivery.id}/resend`)
    await deliver()
    expect([eventsTo(to), eventsTo(moved)]).toEqual([[CHANGED], []])
    await post(`/api/console/deliveries/${delivery.id}/resend`)
    await deliver()
    expect([eventsTo(to), eventsTo(moved)]).toEqual([[CHANGED], [CHANGED]])
  })
})

/** The types of events that a receiver was sent, except the ping at its registration. */
const eventsTo = ({ received }: Receiver): string[] => received.map(({ body }) => JSON.parse(body).event).slice(1)

const good = ({ body, headers }: Received, secret: string): boolean => {
  try {
    Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret)
    return true
  } catch {
    return false
  }
}

describe("secrets", () => {
  const sent = async () => {
    const before = to.received.length
    await send(before)
    await deliver()
    return to.received[before] as Received
  }

  it("that is rolled time and again keeps signing, so that no receiver is locked out at once", async () => {
    const { id, secret } = await register()
    const rolled: string[] = []
    for (let n = 0; n < 6; n++) rolled.push((await post(`${base}/${id}/roll-secret`)).body.data.secret)
    await deliver()
    const last = to.received.at(-1) as Received
    expect([secret, ...rolled].map(each => good(last, each))).toEqual([true, false, false, false, true, true, true])
  })

  it("that is rolled signs for 24 more hours beside the new one", async () => {
    const { id, secret } = await register()
    const { status, body } = await post(`${base}/${id}/roll-secret`)
    expect(status).toBe(200)
    expect(body.data).toEqual({ id, secret: expect.stringMatching(/^whsec_/), previousExpiresAt: expect.any(String) })
    const overlap = await sent()
    expect([good(overlap, secret), good(overlap, body.data.secret)]).toEqual([true, true])
    service.advance(24 * HOUR + 1_000)
    const later = await sent()
    expect([good(later, secret), good(later, body.data.secret)]).toEqual([false, true])
  })

  it("of the account are masked in the settings, and shown when they are rolled", async () => {
    const { body } = await post("/api/console/settings/webhook-secret")
    const { webhookSecret } = body.data
    expect(webhookSecret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/)
    const shown = (await get("/api/console/settings")).body.webhookSecret
    expect(shown).toBe(`whsec_…${webhookSecret.slice(-5)}`)
  })

  it("of the account exists from the first day, signs callbacks, and is shown once", async () => {
    const reveal = () => post("/api/console/settings/webhook-secret/reveal")
    const masked = (await get("/api/console/settings")).body.webhookSecret
    const answers = await Promise.all([reveal(), reveal()])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    const shown = answers.find(({ status }) => status === 200)
    const { webhookSecret } = shown?.body.data ?? {}
    expect(shown?.headers["cache-control"]).toBe("no-store")
    expect(masked).toBe(`whsec_…${webhookSecret.slice(-5)}`)
    expect((await reveal()).body).toMatchObject({
      error: "INVALID_OPERATION",
      message: expect.stringContaining("POST"),
    })
    await callBack(1)
    await deliver()
    expect(good(to.received[0] as Received, webhookSecret)).toBe(true)
    const { body } = await post("/api/console/settings/webhook-secret")
    expect((await reveal()).status).toBe(409)
    await callBack(2)
    await deliver()
    const overlap = to.received[1] as Received
    expect([good(overlap, webhookSecret), good(overlap, body.data.webhookSecret)]).toEqual([true, true])
  })

  it("that was copied over another merchant's row is neither shown nor used", async () => {
    await callBack(1)
    await deliver()
    await service.merchant("thief")
    const { sealed } = await service.ctx.db
      .selectFrom("webhook_secrets")
      .select("sealed")
      .where("merchant_id", "=", merchantId)
      .where("webhook_id", "is", null)
      .executeTakeFirstOrThrow()
    await service.ctx.db.updateTable("webhook_secrets").set({ sealed }).where("merchant_id", "!=", merchantId).execute()
    expect((await post("/api/console/settings/webhook-secret/reveal", {}, "thief")).status).toBe(500)
  })

  it("of an account that is older than its secret is created before anything is signed", async () => {
    await service.ctx.db.deleteFrom("webhook_secrets").execute()
    await callBack(1)
    await deliver()
    const { webhookSecret } = (await post("/api/console/settings/webhook-secret/reveal")).body.data
    expect(good(to.received[0] as Received, webhookSecret)).toBe(true)
  })
})

describe("by hand", () => {
  it("a test is sent to a paused endpoint too, and its delivery can be read", async () => {
    const { id } = await register()
    await put(`${base}/${id}`, { active: false })
    const { status, body } = await post(`${base}/${id}/test`)
    expect(status).toBe(201)
    expect(body.data).toMatchObject({ event: "ping", status: "pending", attempts: 0, webhookId: id })
    await deliver()
    const { data } = (await get(`/api/console/deliveries/${body.data.id}`)).body
    expect(data).toMatchObject({ status: "delivered", log: [{ status: 200, error: null }] })
  })

  it("an endpoint with a long backlog is paused and deleted at once; the rest is skipped in steps, as it is recovered", async () => {
    const { db } = service.ctx
    const { id } = await register()
    await send(0)
    await sql`with first as (select e.merchant_id, e.type, e.body, e.created_at, d.order_key from events e join deliveries d on d.event_id = e.id where d.webhook_id = ${id}
        order by d.seq desc limit 1),
      made as (insert into events (id, merchant_id, type, dedupe_key, body, created_at)
        select 'evt_' || lpad(i::text, 24, '0'), merchant_id, type, 'many ' || i, body, created_at from first, generate_series(1, 12000) i)
      insert into deliveries (id, event_id, merchant_id, webhook_id, lane, order_key, status, run_at, created_at, updated_at)
        select 'dlv_' || lpad(i::text, 24, '0'), 'evt_' || lpad(i::text, 24, '0'), merchant_id, ${id}, ${id}, order_key || i, 'pending',
          created_at + interval '1 hour', created_at, created_at from first, generate_series(1, 12000) i`.execute(db)
    const count = async (status: string) =>
      (
        await db
          .selectFrom("deliveries")
          .select("id")
          .where("webhook_id", "=", id)
          .where("status", "=", status as never)
          .execute()
      ).length
    const all = await count("pending")
    expect((await put(`${base}/${id}`, { active: false })).status).toBe(200)
    expect(await count("skipped")).toBe(5_000)
    await skipRest(service.ctx)
    // The notice of the pause is bound to the URL, and is sent.
    expect([await count("skipped"), await count("pending")]).toEqual([all, 1])
    expect((await put(`${base}/${id}`, { active: true })).status).toBe(200)
    await skipRest(service.ctx)
    expect(await count("skipped")).toBe(all)
    expect((await post(`${base}/${id}/recover`, { since: "2026-01-01" })).body).toEqual({
      data: { recovered: all, more: false },
    })
    // What is sent again by hand reaches a paused endpoint too, and no deleted one.
    expect((await put(`${base}/${id}`, { active: false })).status).toBe(200)
    expect((await post(`${base}/${id}/recover`, { since: "2026-01-01" })).body.data.recovered).toBe(5_000)
    await skipRest(service.ctx)
    expect(await count("skipped")).toBe(0)
    expect((await service.call("DELETE", `${base}/${id}`, undefined, { as })).status).toBe(200)
    await skipRest(service.ctx)
    expect(await count("skipped")).toBe(all)
  })

  it("a paused endpoint's deliveries are skipped, and recovered later, since a time", async () => {
    const { id } = await register()
    to.answer(500)
    await send(0)
    await deliver()
    await put(`${base}/${id}`, { active: false })
    await send(1)
    service.advance(HOUR)
    const since = service.ctx.now().toISOString()
    await send(2)
    await deliver()
    expect(eventsTo(to)).toEqual(["subscription.renewal.created", "settings.webhook_changed"])
    const list = async (query: string) => (await get(`${base}/${id}/deliveries?${query}`)).body
    expect((await list("status=skipped")).total).toBe(3)
    await put(`${base}/${id}`, { active: true })
    to.answer(200)
    expect((await post(`${base}/${id}/recover`, { since })).body).toEqual({ data: { recovered: 1, more: false } })
    await deliver()
    expect((await post(`${base}/${id}/recover`, { since: "2026-01-01" })).body).toEqual({
      data: { recovered: 2, more: false },
    })
    await deliver()
    expect(await list("status=delivered&event=subscription.renewal.created")).toMatchObject({ total: 3 })
    expect(await list("event=checkout.confirmed")).toEqual({ data: [], total: 0 })
    const numbers = to.received.slice(3).map(({ body }) => JSON.parse(body).data.n)
    expect(numbers.filter(n => n !== undefined)).toEqual([2, 0, 1])
  })

  it("a resend replaces the planned retry, under the same key, with a count of its own", async () => {
    const { id } = await register()
    to.answer(500)
    await send(1)
    await deliver()
    const [{ id: deliveryId, nextAttemptAt }] = (await get(`${base}/${id}/deliveries`)).body.data
    expect(Date.parse(nextAttemptAt)).toBeGreaterThan(service.ctx.now().getTime())
    const { body } = await post(`/api/console/deliveries/${deliveryId}/resend`)
    expect(body.data).toMatchObject({ id: deliveryId, status: "pending", attempts: 0 })
    await deliver()
    expect((await get(`/api/console/deliveries/${deliveryId}`)).body.data).toMatchObject({ attempts: 1, log: [{}, {}] })
    service.advance(67_000)
    to.answer(200)
    await deliver()
    await post(`/api/console/deliveries/${deliveryId}/resend`)
    await deliver()
    const keys = to.received.slice(1).map(({ headers }) => headers["idempotency-key"])
    expect(keys).toEqual(Array(4).fill(deliveryId))
  })

  it("sends a test and a resend, and recovers, once for one Idempotency-Key", async () => {
    const { id } = await register()
    to.answer(500)
    const keyed = (key: string) => ({ as: "shop", headers: { "idempotency-key": key } })
    const once = async (path: string, body: object, key: string) => {
      const first = await service.call("POST", path, body, keyed(key))
      const between = to.received.length
      await deliver()
      expect(to.received.length).toBe(between + 1)
      const again = await service.call("POST", path, body, keyed(key))
      expect([again.status, again.body]).toEqual([first.status, first.body])
      expect(again.headers["idempotent-replayed"]).toBe("true")
      await deliver()
      expect(to.received.length).toBe(between + 1)
      return first.body.data
    }
    const test = await once(`${base}/${id}/test`, {}, "one")
    const path = `/api/console/deliveries/${test.id}/resend`
    await once(path, {}, "one")
    await service.ctx.db.updateTable("deliveries").set({ status: "failed" }).execute()
    const since = { since: "2026-01-01" }
    expect(await once(`${base}/${id}/recover`, since, "one")).toEqual({ recovered: 1, more: false })
    const other = await service.call("POST", `${base}/${id}/recover`, { since: "2026-01-02" }, keyed("one"))
    expect(other).toMatchObject({ status: 422, body: { error: "IDEMPOTENCY_MISMATCH" } })
  })

  it("shows the newest hundred attempts of one that was resent again and again", async () => {
    const { id } = await register()
    await send(1)
    await deliver()
    const [{ id: delivery_id }] = (await get(`${base}/${id}/deliveries`)).body.data
    const attempt = { delivery_id, started_at: service.ctx.now(), error: null, answer: "x".repeat(4_000) }
    await service.ctx.db
      .insertInto("delivery_attempts")
      .values(Array.from({ length: 150 }, (_, i) => ({ ...attempt, duration_ms: i, status: 500 })))
      .execute()
    const { log } = (await get(`/api/console/deliveries/${delivery_id}`)).body.data
    expect(log.map(({ durationMs }: { durationMs: number }) => durationMs)).toEqual(
      Array.from({ length: 100 }, (_, i) => 50 + i),
    )
  })

  it("a resend while it is being sent restarts the count", async () => {
    await register()
    const held = Promise.withResolvers<void>()
    to.answer(response => void held.promise.then(() => response.writeHead(500).end()))
    await send(1)
    await service.ctx.db.updateTable("deliveries").set({ attempts: 5 }).execute()
    const deliverer = openDeliverer(service.ctx, sender)
    await deliverer.round()
    await to.got(2)
    const [row] = await service.ctx.db.selectFrom("deliveries").selectAll().execute()
    await post(`/api/console/deliveries/${row?.id}/resend`)
    held.resolve()
    await deliverer.idle()
    const after = await service.ctx.db.selectFrom("deliveries").selectAll().execute()
    expect(after).toMatchObject([{ status: "pending", attempts: 1, claim_id: null }])
  })

  it.each(["2026-02-30", "2026-13-01T00:00:00Z", "yesterday", "", 5, "2026-01-01T25:00:00Z"])(
    "400 for the time %j",
    async since => {
      const { id } = await register()
      expect((await post(`${base}/${id}/recover`, { since })).status).toBe(400)
    },
  )
})

describe("GET /api/console/deliveries", () => {
  const list = async (query = "", who = as) => (await get(`/api/console/deliveries?${query}`, who)).body

  it("lists what went to endpoints and to callback URLs, by each filter; one to a callback can be sent again", async () => {
    const { id: webhookId } = await register()
    await send(1)
    await deliver()
    service.advance(HOUR)
    const since = encodeURIComponent(service.ctx.now().toISOString())
    await callBack(2)
    const { data, total } = await list()
    expect(total).toBe(2)
    const [callback, own] = data
    expect(own).toMatchObject({ webhookId, url: to.url, status: "delivered" })
    expect(callback).toMatchObject({
      webhookId: null,
      sessionId: `cs_${"2".repeat(24)}`,
      url: `${to.url}/own`,
      status: "pending",
    })
    for (const [query, expected] of [
      ["status=pending", callback],
      ["destination=callback", callback],
      ["destination=webhook", own],
      [`webhookId=${webhookId}`, own],
      [`eventId=${own.eventId}`, own],
      [`sessionId=${callback.sessionId}`, callback],
      [`since=${since}`, callback],
      [`until=${since}&event=subscription.renewal.created`, own],
    ] as const)
      expect([query, (await list(query)).data]).toEqual([query, [expected]])
    expect(await list("event=paywall.granted")).toEqual({ data: [], total: 0 })
    expect(await list("", "somebody else")).toEqual({ data: [], total: 0 })
    for (const query of ["status=lost", "destination=x", "webhookId=1", "sessionId=1", "eventId=1", "until=2026-02-30"])
      expect([query, (await get(`/api/console/deliveries?${query}`)).status]).toEqual([query, 400])
    await deliver()
    await post(`/api/console/deliveries/${callback.id}/resend`)
    await deliver()
    const sent = to.received.filter(({ headers }) => headers["idempotency-key"] === callback.id)
    expect(sent).toHaveLength(2)
  })
})

describe("another merchant's", () => {
  it("is 404 NOT_FOUND everywhere, and stays as it is", async () => {
    const { id } = await register()
    await send(1)
    const [row] = await service.ctx.db.selectFrom("deliveries").selectAll().execute()
    const rival = { as: "rival" }
    for (const [method, url, body] of [
      ["GET", `${base}/${id}`],
      ["PUT", `${base}/${id}`, { active: false }],
      ["DELETE", `${base}/${id}`],
      ["GET", `${base}/${id}/deliveries`],
      ["POST", `${base}/${id}/test`, {}],
      ["POST", `${base}/${id}/roll-secret`, {}],
      ["POST", `${base}/${id}/recover`, { since: "2026-01-01" }],
      ["GET", `/api/console/deliveries/${row?.id}`],
      ["POST", `/api/console/deliveries/${row?.id}/resend`, {}],
    ] as const)
      expect(await service.call(method, url, body, rival)).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    expect((await get("/api/console/events", "rival")).body).toEqual({ data: [], total: 0 })
    expect(await service.ctx.db.selectFrom("deliveries").selectAll().execute()).toEqual([row])
  })
})

describe("events", () => {
  it("of a payout address that changes reach every endpoint, whatever its subscriptions", async () => {
    await register(["checkout.failed"])
    const payoutAddress = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
    await put("/api/console/settings", { payoutAddress })
    await put("/api/console/settings", { payoutAddress, name: "Shop" })
    await deliver()
    expect(to.received.slice(1).map(({ body }) => JSON.parse(body))).toEqual([
      {
        id: expect.stringMatching(/^evt_/),
        event: "settings.payout_address_changed",
        createdAt: expect.any(String),
        data: {
          merchantId,
          chain: "base-sepolia",
          payoutAddress,
          previousAddress: PAYOUT_ADDRESS,
          effectiveAt: expect.any(String),
        },
      },
    ])
  })

  it("are read by id, by their own merchant alone", async () => {
    await register()
    await send(1)
    await deliver()
    const sent = JSON.parse(to.received[1]?.body ?? "")
    expect((await get(`/api/console/events/${sent.id}`)).body).toEqual({ data: sent })
    expect((await get(`/api/console/events/${sent.id}`, "somebody else")).status).toBe(404)
    expect((await get("/api/console/events/evt_none")).status).toBe(404)
  })

  it("are listed by type and time", async () => {
    await send(1)
    service.advance(HOUR)
    const since = service.ctx.now().toISOString()
    await send(2)
    const list = async (query: string) =>
      (await get(`/api/console/events?${query}`)).body.data.map((each: { data: { n: number } }) => each.data.n)
    expect(await list("")).toEqual([2, 1])
    expect(await list(`since=${encodeURIComponent(since)}`)).toEqual([2])
    expect(await list("type=subscription.renewal.created&limit=1&offset=1")).toEqual([1])
    expect(await list("type=paywall.granted")).toEqual([])
    for (const query of ["type=nothing", "since=yesterday", "since=2026-02-30"])
      expect((await get(`/api/console/events?${query}`)).status).toBe(400)
  })
})
