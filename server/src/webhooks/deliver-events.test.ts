import { once } from "node:events"
import type { AddressInfo } from "node:net"
import { createServer, type Server, type Socket } from "node:net"
import { array, assert, asyncProperty, boolean, constantFrom, record, uniqueArray } from "fast-check"
import { sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../test/database.ts"
import { until } from "../../test/e2e/program.ts"
import { type Received, type Receiver, startReceiver } from "../../test/receiver.ts"
import { startService, type TestService } from "../../test/service.ts"
import { inTransaction } from "../context.ts"
import { registry } from "../metrics.ts"
import { type Deliverer, forgetOldEvents, openDeliverer } from "./deliver-events.ts"
import { emit, emitAll, type NewEvent } from "./emit.ts"
import { measureBacklog } from "./measure-backlog.ts"
import { recordAttempts } from "./record-attempts.ts"
import { secretsOf } from "./secrets.ts"
import { openSender, type Sender } from "./send.ts"
import { type EventType, eventTypes, subscribable } from "./webhook.ts"

const MINUTE = 60_000
const as = "shop"

let service: TestService
let merchantId: string
let sender: Sender
let deliverer: Deliverer
const stops: (() => unknown)[] = []
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  merchantId = await service.merchant(as)
  await service.ctx.db.deleteFrom("events").execute()
  sender = openSender(service.ctx.settings.webhooks)
  deliverer = openDeliverer(service.ctx, sender)
})
afterEach(async () => {
  await sender.close()
  for (const stop of stops.splice(0)) await stop()
})

async function receiver(...how: Parameters<typeof startReceiver>): Promise<Receiver> {
  const made = await startReceiver(...how)
  stops.push(made.stop)
  return made
}

/** An endpoint for list A, registered as a merchant does; without the notice of it to the others. */
async function register(url: string, events = ["*"]): Promise<{ id: string; secret: string }> {
  const { status, body } = await service.call("POST", "/api/console/webhooks", { url, events }, { as })
  expect(status, JSON.stringify(body)).toBe(201)
  const notices = service.ctx.db.selectFrom("events").select("id").where("type", "=", "settings.webhook_changed")
  await service.ctx.db.deleteFrom("deliveries").where("event_id", "in", notices).execute()
  await service.ctx.db.deleteFrom("events").where("type", "=", "settings.webhook_changed").execute()
  return body.data
}

/** An endpoint with any address, bypassing registration. */
async function place(url: string): Promise<string> {
  const to = await receiver()
  const { id } = await register(to.url)
  await service.ctx.db.updateTable("webhooks").set({ url }).where("id", "=", id).execute()
  return id
}

const send = (more: Partial<NewEvent<"subscription.renewal.created">> = {}) =>
  inTransaction(service.ctx, ctx =>
    emit(ctx, {
      merchantId,
      type: "subscription.renewal.created",
      orderKey: `cs_${Math.random()}`,
      data: { n: 1 } as never,
      ...more,
    }),
  )

/** Delivers until nothing is due. */
async function deliver(by = deliverer): Promise<void> {
  do await by.idle()
  while ((await by.round()) > 0)
}

/** Delivers until nothing is due, with this deadline for each exchange. */
const deliverWithin = (timeoutMs: number) => {
  const settings = { ...service.ctx.settings, webhooks: { ...service.ctx.settings.webhooks, timeoutMs } }
  return deliver(openDeliverer({ ...service.ctx, settings }, sender))
}

async function only() {
  const rows = await service.ctx.db.selectFrom("deliveries").selectAll().execute()
  expect(rows).toHaveLength(1)
  const [row] = rows
  if (!row) throw new Error("no delivery")
  const { body } = await service.call("GET", `/api/console/deliveries/${row.id}`, undefined, { as })
  return { ...row, shown: body.data, log: body.data.log }
}

describe("a delivery", () => {
  it("carries the event as it was written, signed, under its own key", async () => {
    const to = await receiver()
    const { secret } = await register(to.url)
    const id = await send({ data: { name: "Zoë", amount: "5.00" } as never })
    await deliver()
    const { body, headers } = to.received[1] as Received
    const event = (await service.call("GET", "/api/console/events", undefined, { as })).body.data[0]
    expect(JSON.parse(body)).toEqual({
      id,
      event: "subscription.renewal.created",
      createdAt: expect.stringMatching(/Z$/),
      data: { name: "Zoë", amount: "5.00" },
    })
    expect(event).toEqual(JSON.parse(body))
    const { id: deliveryId, log, shown } = await only()
    expect(headers).toMatchObject({
      "content-type": "application/json",
      "idempotency-key": deliveryId,
      "webhook-id": id,
      "service-signature": expect.stringMatching(/^t=\d+,v1=[0-9a-f]{64}$/),
    })
    const { default: Stripe } = await import("stripe")
    expect(Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret).id).toBe(id)
    expect(shown).toMatchObject({ status: "delivered", attempts: 1, nextAttemptAt: null, url: to.url })
    expect(log).toEqual([
      { at: expect.any(String), durationMs: expect.any(Number), status: 200, error: null, answer: "thanks" },
    ])
  })

  it("is retried after 1 min, 5 min, 30 min, 2 h and 8 h, the same bytes under the same key, and then has failed", async () => {
    const to = await receiver()
    await register(to.url)
    to.answer(500)
    await send()
    for (const [n, minutes] of [1, 5, 30, 120, 480].entries()) {
      await deliver()
      expect(to.received).toHaveLength(n + 2)
      expect(await only()).toMatchObject({ status: "pending", attempts: n + 1 })
      // The clock runs on meanwhile: half a minute is more than the delivery takes.
      service.advance(minutes * MINUTE - MINUTE / 2)
      await deliver()
      expect(to.received, "not before its time").toHaveLength(n + 2)
      service.advance(minutes * MINUTE * 0.1 + MINUTE / 2)
    }
    await deliver()
    const { status, attempts, log, shown } = await only()
    expect({ status, attempts, next: shown.nextAttemptAt }).toEqual({ status: "failed", attempts: 6, next: null })
    expect(log.map((each: { error: string }) => each.error)).toEqual(Array(6).fill("answered 500"))
    service.advance(30 * 24 * 60 * MINUTE)
    await deliver()
    const tries = to.received.slice(1)
    expect(tries).toHaveLength(6)
    expect(new Set(tries.map(({ body, headers }) => `${headers["idempotency-key"]} ${body}`)).size).toBe(1)
  })

  it("that succeeds at last is not retried", async () => {
    const to = await receiver()
    const { id } = await register(to.url)
    to.answer(503)
    await send()
    await deliver()
    const failing = () =>
      service.ctx.db.selectFrom("webhooks").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    expect((await failing()).failing_since).not.toBeNull()
    to.answer(204)
    service.advance(2 * MINUTE)
    await deliver()
    expect(await only()).toMatchObject({ status: "delivered", attempts: 2 })
    expect((await failing()).failing_since).toBeNull()
    service.advance(60 * MINUTE)
    await deliver()
    expect(to.received).toHaveLength(3)
  })

  it("waits for Retry-After of a 429, at most twice its time", async () => {
    const to = await receiver()
    await register(to.url)
    to.answer(response => response.writeHead(429, { "retry-after": "90" }).end())
    await send()
    const before = service.ctx.now().getTime()
    await deliver()
    const { run_at } = await only()
    expect(run_at.getTime() - before).toBeGreaterThanOrEqual(90_000)
    expect(run_at.getTime() - service.ctx.now().getTime()).toBeLessThanOrEqual(90_000)
  })

  it("answered 410 has failed, deactivates the endpoint, and its other deliveries are skipped", async () => {
    const to = await receiver()
    const { id } = await register(to.url)
    to.answer(500)
    await send()
    await deliver()
    to.answer(410)
    await send()
    await deliver()
    const rows = await service.ctx.db.selectFrom("deliveries").select(["status"]).orderBy("seq").execute()
    expect(rows).toEqual([{ status: "skipped" }, { status: "failed" }])
    const { body } = await service.call("GET", `/api/console/webhooks/${id}`, undefined, { as })
    expect(body.data).toMatchObject({ active: false, disabledReason: "gone" })
    await send()
    service.advance(600 * MINUTE)
    await deliver()
    expect(to.received).toHaveLength(3)
    const on = await service.call("PUT", `/api/console/webhooks/${id}`, { active: true }, { as })
    expect(on.body.data).toMatchObject({ active: true, disabledReason: null })
  })

  it("to an endpoint that only failed for five days pauses it; one success before restarts the count", async () => {
    const to = await receiver()
    const { id } = await register(to.url)
    const state = async () => (await service.call("GET", `/api/console/webhooks/${id}`, undefined, { as })).body.data
    const after = async (days: number, status: number) => {
      service.advance(days * 24 * 60 * MINUTE)
      to.answer(status)
      await send()
      await deliver()
    }
    await after(0, 500)
    await after(4.9, 500)
    expect(await state()).toMatchObject({ active: true })
    await after(0, 200)
    await after(0.2, 500)
    await after(4.9, 500)
    expect(await state()).toMatchObject({ active: true, disabledReason: null })
    await after(0.2, 500)
    expect(await state()).toMatchObject({ active: false, disabledReason: "failing" })
  })

  it("goes where a session says, and only there, signed with the account's secret", async () => {
    const [own, callback] = [await receiver(), await receiver()]
    await register(own.url)
    await send({ callbackUrl: callback.url })
    await deliver()
    expect([own.received.length, callback.received.length]).toEqual([1, 1])
    const [secret = ""] = await secretsOf(service.ctx, { merchantId, webhookId: null })
    const { default: Stripe } = await import("stripe")
    const { body, headers } = callback.received[0] as Received
    Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret)
    expect(await only()).toMatchObject({ status: "delivered", webhook_id: null, url: callback.url })
  })

  it("is one however often the event is emitted, and there is none for a transaction that failed", async () => {
    const to = await receiver()
    await register(to.url)
    const emitted = await Promise.all([1, 2, 3].map(() => send({ dedupeKey: "checkout.session.completed:cs_1" })))
    expect(emitted.filter(id => id !== undefined)).toHaveLength(1)
    await expect(
      inTransaction(service.ctx, async ctx => {
        await emit(ctx, { merchantId, type: "subscription.renewal.created", orderKey: "x", data: {} as never })
        throw new Error("no")
      }),
    ).rejects.toThrow("no")
    await deliver()
    expect(to.received).toHaveLength(2)
  })

  it("is sent in order for one payment, while those of other payments are sent in parallel", async () => {
    const to = await receiver()
    await register(to.url)
    const held = Promise.withResolvers<void>()
    to.answer((response, { body }) => {
      const { n } = JSON.parse(body).data
      if (n === 1) held.promise.then(() => response.writeHead(200).end())
      else response.writeHead(200).end()
    })
    for (const n of [1, 2, 3]) await send({ orderKey: "cs_1", data: { n } as never })
    await send({ orderKey: "cs_2", data: { n: 9 } as never })
    expect(await deliverer.round()).toBe(2)
    await to.got(3)
    expect(await deliverer.round()).toBe(0)
    held.resolve()
    await deliver()
    const seen = to.received.slice(1).map(({ body }) => JSON.parse(body).data.n)
    expect(seen.filter(n => n !== 9)).toEqual([1, 2, 3])
  })

  it("is claimed the later the more are claimed with it, at most 10 ms, and at once where more wait or nothing came", async () => {
    const to = [await receiver(), await receiver(), await receiver()]
    for (const { url } of to) await register(url)
    const claimed = async (events: number) => {
      for (let n = 0; n < events; n++) await send()
      await deliverer.round()
      const gapMs = deliverer.gapMs()
      await deliver()
      return [gapMs, deliverer.gapMs()]
    }
    expect(await claimed(1)).toEqual([3, 0])
    expect(await claimed(10)).toEqual([10, 0])
    expect(await claimed(20)).toEqual([0, 0])
  })

  it("carries its own event, however the deliveries of many events follow each other in a claim", async () => {
    const to = [await receiver(), await receiver(), await receiver()]
    for (const { url } of to) await register(url)
    await Promise.all(Array.from({ length: 10 }, (_, n) => send({ orderKey: `cs_${n}`, data: { n } as never })))
    await deliver()
    for (const { received } of to) {
      const events = received.slice(1)
      expect(new Set(events.map(({ body }) => JSON.parse(body).data.n)).size).toBe(10)
      expect(events.map(({ body }) => JSON.parse(body).id)).toEqual(events.map(({ headers }) => headers["webhook-id"]))
    }
  })

  it("that failed delays no later one of its payment", async () => {
    const to = await receiver()
    await register(to.url)
    to.answer((response, { body }) => response.writeHead(JSON.parse(body).data.n === 1 ? 500 : 200).end())
    for (const n of [1, 2]) await send({ orderKey: "cs_1", data: { n } as never })
    await deliver()
    const rows = await service.ctx.db.selectFrom("deliveries").select("status").orderBy("seq").execute()
    expect(rows).toEqual([{ status: "pending" }, { status: "delivered" }])
  })

  it("takes turns: one endpoint has at most its own number of concurrent requests, and the others continue", async () => {
    const [hangs, good] = [await receiver(), await receiver()]
    await register(hangs.url)
    await register(good.url)
    const held = Promise.withResolvers<void>()
    hangs.answer(response => void held.promise.then(() => response.writeHead(200).end()))
    for (let i = 0; i < 30; i++) await send()
    const { concurrencyPerEndpoint } = service.ctx.settings.webhooks
    while (good.received.length < 31) {
      await deliverer.round()
      await Promise.race([deliverer.idle(), good.got(Math.min(31, good.received.length + 1))])
    }
    expect(hangs.received.length - 1).toBeLessThanOrEqual(concurrencyPerEndpoint)
    held.resolve()
    await deliverer.idle()
  })

  it.runIf(onPostgres)("is claimed and sent while those before it are still being recorded", async () => {
    const to = await receiver()
    await register(to.url)
    for (let i = 0; i < 60; i++) await send()
    const [locked, recordable] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const locking = inTransaction(service.ctx, async ({ db }) => {
      await sql`lock table delivery_attempts`.execute(db)
      locked.resolve()
      await recordable.promise
    })
    stops.push(recordable.resolve)
    await locked.promise
    let woken = 0
    const wakes = { ...service.ctx.wakes, wakeHere: () => void woken++ }
    const deliverer = openDeliverer({ ...service.ctx, wakes }, sender)
    expect(await deliverer.round()).toBe(20)
    await until("more are asked for", () => woken > 0)
    expect(await deliverer.round()).toBeGreaterThan(0)
    await to.got(1 + 21)
    const attempts = await service.ctx.db.selectFrom("deliveries").select("attempts").distinct().execute()
    expect(attempts).toEqual([{ attempts: 0 }])
    recordable.resolve()
    await locking
    await deliverer.idle()
  })

  it("is measured while it is due, and while it waits for its next attempt", async () => {
    const measured = async () => {
      await measureBacklog(service.ctx)
      const values = async (name: string) => (await registry.getSingleMetric(name)?.get())?.values ?? []
      const [oldest] = await values("sluice_webhook_oldest_due_seconds")
      const states = (await values("sluice_webhook_backlog")).map(({ labels, value }) => [labels.state, value])
      return { ...Object.fromEntries(states), oldest: Math.floor(oldest?.value ?? Number.NaN) }
    }
    await register((await receiver(500)).url)
    await send()
    await send()
    service.advance(60_000)
    expect(await measured()).toMatchObject({ due: 2, retry: 0, oldest: expect.closeTo(60, -1) })
    await deliver()
    expect(await measured()).toEqual({ due: 0, retry: 2, oldest: 0 })
  })

  it("is kept for its time, and not longer", async () => {
    const to = await receiver()
    await register(to.url)
    await send()
    await deliver()
    to.answer(500)
    await send()
    service.advance(90 * 24 * 60 * MINUTE - 1_000)
    await forgetOldEvents(service.ctx)
    const count = async () => (await service.ctx.db.selectFrom("events").select("id").execute()).length
    expect(await count()).toBe(2)
    service.advance(2_000)
    await forgetOldEvents(service.ctx)
    expect(await count(), "what still waits is kept").toBe(1)
    expect(await service.ctx.db.selectFrom("delivery_attempts").selectAll().execute()).toEqual([])
  })
})

describe("an event that is emitted alone", () => {
  it("makes the same deliveries as beside another, whatever its kind and whoever subscribes, and only once", async () => {
    const type = constantFrom(...eventTypes.filter(each => !each.startsWith("settings.")))
    const endpoints = array(
      record({ events: uniqueArray(constantFrom(...subscribable), { minLength: 1 }), active: boolean() }),
      { maxLength: 4 },
    )
    const law = asyncProperty(type, endpoints, boolean(), async (type, endpoints, calls) => {
      const { db } = service.ctx
      for (const table of ["events", "webhook_secrets", "webhooks"] as const) await db.deleteFrom(table).execute()
      const times = { created_at: new Date(), updated_at: new Date(), description: null }
      for (const [n, { events, active }] of endpoints.entries())
        await db
          .insertInto("webhooks")
          .values({
            ...{ id: `c${String(n).padStart(24, "0")}`, merchant_id: merchantId, url: `https://shop.example/${n}` },
            ...{ events: JSON.stringify(events), active, ...times },
          })
          .execute()
      const event = (n: number): NewEvent<EventType> => ({
        ...{ merchantId, type, data: { n: 1 } as never, orderKey: "cs_1", dedupeKey: `${n}` },
        ...(calls ? { callbackUrl: "https://shop.example/call" } : {}),
      })
      const emitted = (...events: NewEvent<EventType>[]) => inTransaction(service.ctx, ctx => emitAll(ctx, events))
      const [[alone], [beside]] = [await emitted(event(1)), await emitted(event(2), event(3))]
      expect(await emitted(event(1))).toEqual([undefined])
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

describe("prefetched", () => {
  const HELD = 10
  const claimed = () => service.ctx.db.selectFrom("deliveries").selectAll().where("claim_id", "is not", null).execute()
  /** A claimed delivery becomes too old by this clock alone, however long the test takes. */
  let clockMs: number
  beforeEach(() => {
    clockMs = performance.now()
    const clock = vi.spyOn(performance, "now").mockImplementation(() => clockMs)
    stops.push(() => clock.mockRestore())
  })

  /** An endpoint with its maximum of concurrent requests in progress until `release`, and five more claimed. */
  async function fiveAhead(signal = service.ctx.signal) {
    const to = await receiver()
    await register(to.url)
    const held = Promise.withResolvers<void>()
    to.answer(response => void held.promise.then(() => response.writeHead(200).end()))
    for (let i = 0; i < HELD + 5; i++) await send()
    const deliverer = openDeliverer({ ...service.ctx, signal }, sender)
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
    const rows = await service.ctx.db.selectFrom("deliveries").selectAll().where("status", "=", "pending").execute()
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
    const to = await receiver()
    await register(to.url)
    to.answer(500)
    await send()
    await deliver()
    for (let i = 0; i < HELD + 5; i++) await send()
    expect(await deliverer.round()).toBe(HELD)
    await deliverer.idle()
  })
})

describe("what goes wrong", () => {
  /** A raw server, for answers that no HTTP library would give. */
  async function raw(onConnection: (socket: Socket) => void): Promise<string> {
    const sockets: Socket[] = []
    const server: Server = createServer(socket => {
      sockets.push(socket)
      socket.on("error", () => {})
      onConnection(socket)
    }).listen(0, "127.0.0.1")
    await once(server, "listening")
    stops.push(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  }
  const afterRequest = (text: string) => (socket: Socket) => void socket.once("data", () => socket.write(text))

  it.each([
    [
      "a redirect",
      302,
      /^answered 302, a redirect to http:\/\/127\.0\.0\.1:1\/; redirects are not followed$/,
      (at: Receiver) => at.answer(response => response.writeHead(302, { location: "http://127.0.0.1:1/" }).end()),
    ],
    ["a hang", null, /^no answer within 2 s$/, (at: Receiver) => at.answer(() => {})],
    [
      "a body that trickles",
      200,
      /^answered 200, but did not finish its answer within 2 s$/,
      (at: Receiver) =>
        at.answer(response => {
          response.writeHead(200)
          const timer = setInterval(() => response.write("x"), 100)
          response.on("close", () => clearInterval(timer))
        }),
    ],
    [
      "a reset",
      null,
      /^the connection was closed before the answer was complete$/,
      (at: Receiver) => at.answer((_response, _received, request) => request.socket.resetAndDestroy()),
    ],
    [
      "a reset in the body",
      200,
      /^answered 200, but the connection was closed before the answer was complete$/,
      (at: Receiver) =>
        at.answer((response, _received, request) => {
          response.writeHead(200, { "content-length": "100" })
          response.write("half", () => request.socket.destroy())
        }),
    ],
  ])("%s is explained in words, and retried", async (_what, status, words, arrange) => {
    const to = await receiver()
    await register(to.url)
    arrange(to)
    await send()
    await deliverWithin(words.source.includes("within") ? 2_000 : service.ctx.settings.webhooks.timeoutMs)
    const { log, ...delivery } = await only()
    expect(delivery).toMatchObject({ status: "pending", attempts: 1 })
    expect(log).toEqual([expect.objectContaining({ status, error: expect.stringMatching(words) })])
  })

  it("a gigabyte: its first part is kept, the rest is not read", async () => {
    let sent = 0
    const to = await receiver()
    await register(to.url)
    to.answer(response => {
      response.writeHead(200)
      const chunk = Buffer.alloc(64 * 1024, "x")
      const more = () => {
        while (sent < 2 ** 30 && !response.destroyed) {
          sent += chunk.length
          if (!response.write(chunk)) return void response.once("drain", more)
        }
      }
      more()
    })
    await send()
    await deliver()
    const { status, log } = await only()
    expect(status).toBe("delivered")
    expect(log[0].answer).toBe("x".repeat(4_096))
    expect(sent).toBeLessThan(64 * 2 ** 20)
  })

  it.each([
    ["informational answers", "", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"],
    ["chunk extensions", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x".repeat(1_000)],
  ])("endless %s are not read for as long as they come", async (_what, head, part) => {
    let sent = 0
    const to = await raw(socket => {
      socket.once("data", () => {
        socket.write(head)
        const more = () => {
          while (sent < 2 ** 30 && !socket.destroyed) {
            sent += part.length * 64
            if (!socket.write(part.repeat(64))) return void socket.once("drain", more)
          }
        }
        more()
      })
    })
    await place(to)
    await send()
    await deliver()
    expect((await only()).log).toEqual([
      expect.objectContaining({ error: expect.stringMatching(/its answer is too large$/) }),
    ])
    expect(sent).toBeLessThan(64 * 2 ** 20)
  })

  it.each([
    ["no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", /^its answer is not HTTP$/],
    [
      "endless headers",
      `HTTP/1.1 200 OK\r\n${"X-A: b\r\n".repeat(10_000)}`,
      /^its answer has too many headers|not HTTP/,
    ],
  ])("%s", async (_what, text, words) => {
    await place(await raw(afterRequest(text)))
    await send()
    await deliver()
    expect((await only()).log).toEqual([expect.objectContaining({ status: null, error: expect.stringMatching(words) })])
  })

  it("nobody there, a name without an address, plain text where TLS is expected", async () => {
    const plain = await raw(afterRequest("HTTP/1.1 400 Bad Request\r\n\r\n"))
    for (const [url, words] of [
      ["http://127.0.0.1:1/", /^the connection was refused$/],
      ["http://nowhere.invalid/", /^the name nowhere\.invalid (has no address|can't be resolved) \(DNS says /],
      [plain.replace("http:", "https:"), /^no secure connection could be established/],
    ] as const) {
      await service.ctx.db.deleteFrom("events").execute()
      await service.ctx.db.deleteFrom("webhook_secrets").execute()
      await service.ctx.db.deleteFrom("webhooks").execute()
      await place(url)
      await send()
      await deliver()
      expect((await only()).log).toEqual([
        expect.objectContaining({ status: null, error: expect.stringMatching(words) }),
      ])
    }
  })

  it("an answer that is not text is kept as far as a database can", async () => {
    const to = await receiver()
    await register(to.url)
    to.answer(response => response.writeHead(200).end(Buffer.from([0x61, 0, 0xff, 0xfe, 0x62])))
    await send()
    await deliver()
    expect((await only()).log[0].answer).toBe("a\ufffd\ufffd\ufffdb")
  })
})

describe("leases", () => {
  it("a worker that lost its lease changes nothing", async () => {
    const to = await receiver()
    await register(to.url)
    await send()
    const { db } = service.ctx
    await db.updateTable("deliveries").set({ claim_id: "11111111-1111-4111-8111-111111111111" }).execute()
    const [stale] = await db.selectFrom("deliveries").selectAll().execute()
    await db.updateTable("deliveries").set({ claim_id: "22222222-2222-4222-8222-222222222222" }).execute()
    const before = await db.selectFrom("deliveries").selectAll().execute()
    for (const error of [null, "answered 500"]) {
      const attempt = { status: 500, error, answer: "", durationMs: 1, retryAfterMs: undefined }
      const result = { delivery: stale as never, webhook: undefined, startedAt: new Date(), attempt }
      expect(await recordAttempts(service.ctx, [result])).toBe(0)
    }
    expect(await db.selectFrom("deliveries").selectAll().execute()).toEqual(before)
    expect(await db.selectFrom("delivery_attempts").selectAll().execute()).toEqual([])
  })

  it(`rivals send each event once (${onPostgres ? "several connections" : "one connection"})`, async () => {
    const to = await receiver()
    await register(to.url)
    for (let i = 0; i < 40; i++) await send()
    const rivals = Array.from({ length: 4 }, () => openDeliverer(service.ctx, sender))
    await Promise.all(
      rivals.map(async rival => {
        do await rival.idle()
        while ((await rival.round()) > 0)
      }),
    )
    await deliver()
    const keys = to.received.slice(1).map(({ headers }) => headers["idempotency-key"])
    expect(keys).toHaveLength(40)
    expect(new Set(keys).size).toBe(40)
  })
})
