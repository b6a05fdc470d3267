import { once } from "node:events"
import type { AddressInfo } from "node:net"
import { createServer, type Server, type Socket } from "node:net"
import { sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { type DeliveryRig, startDeliveryRig } from "../../../test/deliveries.ts"
import { until } from "../../../test/e2e/program.ts"
import type { Received, Receiver } from "../../../test/receiver.ts"
import { inTransaction } from "../../platform/context.ts"
import { registry } from "../../platform/metrics.ts"
import { forgetOldEvents, openDeliverer } from "./deliver-events.ts"
import { emit } from "./emit.ts"
import { secretsOf } from "./manage-secrets.ts"
import { measureBacklog } from "./measure-backlog.ts"

const MINUTE = 60_000
const as = "shop"

let rig: DeliveryRig
beforeAll(async () => {
  rig = await startDeliveryRig()
})
afterAll(() => rig?.stop())
beforeEach(() => rig.begin())
afterEach(() => rig.end())

/** An endpoint with any address, bypassing registration. */
async function place(url: string): Promise<string> {
  const to = await rig.receiver()
  const { id } = await rig.register(to.url)
  await rig.service.ctx.db.updateTable("webhooks").set({ url }).where("id", "=", id).execute()
  return id
}

/** Delivers until nothing is due, with this deadline for each exchange. */
const deliverWithin = (timeoutMs: number) => {
  const settings = { ...rig.service.ctx.settings, webhooks: { ...rig.service.ctx.settings.webhooks, timeoutMs } }
  return rig.deliver(openDeliverer({ ...rig.service.ctx, settings }, rig.sender))
}

async function only() {
  const rows = await rig.service.ctx.db.selectFrom("deliveries").selectAll().execute()
  expect(rows).toHaveLength(1)
  const [row] = rows
  if (!row) throw new Error("no delivery")
  const { body } = await rig.service.call("GET", `/api/console/deliveries/${row.id}`, undefined, { as })
  return { ...row, shown: body.data, log: body.data.log }
}

describe("a delivery", () => {
  it("carries the event as it was written, signed, under its own key", async () => {
    const to = await rig.receiver()
    const { secret } = await rig.register(to.url)
    const id = await rig.send({ data: { name: "Zoë", amount: "5.00" } })
    await rig.deliver()
    const { body, headers } = to.received[1] as Received
    const event = (await rig.service.call("GET", "/api/console/events", undefined, { as })).body.data[0]
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
      {
        at: expect.any(String),
        durationMs: expect.any(Number),
        status: 200,
        error: null,
        answer: "thanks",
        headers: expect.objectContaining({ "webhook-id": id }),
      },
    ])
  })

  it("is retried after 1 min, 5 min, 30 min, 2 h and 8 h, the same bytes under the same key, and then has failed", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    to.answer(500)
    await rig.send()
    for (const [n, minutes] of [1, 5, 30, 120, 480].entries()) {
      await rig.deliver()
      expect(to.received).toHaveLength(n + 2)
      expect(await only()).toMatchObject({ status: "pending", attempts: n + 1 })
      // The clock moves on during the delivery; half a minute is more than it takes.
      rig.service.advance(minutes * MINUTE - MINUTE / 2)
      await rig.deliver()
      expect(to.received, "not before its time").toHaveLength(n + 2)
      rig.service.advance(minutes * MINUTE * 0.1 + MINUTE / 2)
    }
    await rig.deliver()
    const { status, attempts, log, shown } = await only()
    expect({ status, attempts, next: shown.nextAttemptAt }).toEqual({ status: "failed", attempts: 6, next: null })
    expect(log.map((each: { error: string }) => each.error)).toEqual(Array(6).fill("answered 500"))
    rig.service.advance(30 * 24 * 60 * MINUTE)
    await rig.deliver()
    const tries = to.received.slice(1)
    expect(tries).toHaveLength(6)
    expect(new Set(tries.map(({ body, headers }) => `${headers["idempotency-key"]} ${body}`)).size).toBe(1)
  })

  it("that succeeds at last is not retried", async () => {
    const to = await rig.receiver()
    const { id } = await rig.register(to.url)
    to.answer(503)
    await rig.send()
    await rig.deliver()
    const failing = () =>
      rig.service.ctx.db.selectFrom("webhooks").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    expect((await failing()).failing_since).not.toBeNull()
    to.answer(204)
    rig.service.advance(2 * MINUTE)
    await rig.deliver()
    expect(await only()).toMatchObject({ status: "delivered", attempts: 2 })
    expect((await failing()).failing_since).toBeNull()
    rig.service.advance(60 * MINUTE)
    await rig.deliver()
    expect(to.received).toHaveLength(3)
  })

  it("waits for Retry-After of a 429, at most twice its time", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    to.answer(response => response.writeHead(429, { "retry-after": "90" }).end())
    await rig.send()
    const before = rig.service.ctx.now().getTime()
    await rig.deliver()
    const { run_at } = await only()
    expect(run_at.getTime() - before).toBeGreaterThanOrEqual(90_000)
    expect(run_at.getTime() - rig.service.ctx.now().getTime()).toBeLessThanOrEqual(90_000)
  })

  it("answered 410 has failed, deactivates the endpoint, and its other deliveries are skipped", async () => {
    const to = await rig.receiver()
    const { id } = await rig.register(to.url)
    to.answer(500)
    await rig.send()
    await rig.deliver()
    to.answer(410)
    await rig.send()
    await rig.deliver()
    const rows = await rig.service.ctx.db.selectFrom("deliveries").select(["status"]).orderBy("seq").execute()
    expect(rows).toEqual([{ status: "skipped" }, { status: "failed" }])
    const { body } = await rig.service.call("GET", `/api/console/webhooks/${id}`, undefined, { as })
    expect(body.data).toMatchObject({ active: false, disabledReason: "gone" })
    await rig.send()
    rig.service.advance(600 * MINUTE)
    await rig.deliver()
    expect(to.received).toHaveLength(3)
    const on = await rig.service.call("PUT", `/api/console/webhooks/${id}`, { active: true }, { as })
    expect(on.body.data).toMatchObject({ active: true, disabledReason: null })
  })

  it("to an endpoint that only failed for five days pauses it; one success before restarts the count", async () => {
    const to = await rig.receiver()
    const { id } = await rig.register(to.url)
    const state = async () =>
      (await rig.service.call("GET", `/api/console/webhooks/${id}`, undefined, { as })).body.data
    const after = async (days: number, status: number) => {
      rig.service.advance(days * 24 * 60 * MINUTE)
      to.answer(status)
      await rig.send()
      await rig.deliver()
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

  it("that succeeded while another failed, and was recorded after it, restarts the count too", async () => {
    const to = await rig.receiver()
    const { id } = await rig.register(to.url)
    const held = Promise.withResolvers<void>()
    let n = 0
    to.answer(response => {
      if (n++ === 0) void held.promise.then(() => response.writeHead(200).end())
      else response.writeHead(500).end()
    })
    await rig.send()
    await rig.send()
    const delivered = rig.deliver()
    const webhook = () =>
      rig.service.ctx.db.selectFrom("webhooks").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    await until("the failure is recorded", async () => (await webhook()).failing_since !== null)
    held.resolve()
    await delivered
    rig.service.advance(6 * 24 * 60 * MINUTE)
    await rig.deliver()
    expect(await webhook()).toMatchObject({ active: true, failing_since: null })
    await rig.send()
    await rig.deliver()
    rig.service.advance(6 * 24 * 60 * MINUTE)
    await rig.deliver()
    expect(await webhook()).toMatchObject({ active: false, disabled_reason: "failing" })
  })

  it("goes where a session says, and only there, signed with the account's secret", async () => {
    const own = await rig.receiver()
    const callback = await rig.receiver()
    await rig.register(own.url)
    await rig.send({ callbackUrl: callback.url })
    await rig.deliver()
    expect([own.received.length, callback.received.length]).toEqual([1, 1])
    const [secret = ""] = await secretsOf(rig.service.ctx, { merchantId: rig.merchantId, webhookId: null })
    const { default: Stripe } = await import("stripe")
    const { body, headers } = callback.received[0] as Received
    Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret)
    expect(await only()).toMatchObject({ status: "delivered", webhook_id: null, url: callback.url })
  })

  it("is one however often the event is emitted, and there is none for a transaction that failed", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    const emitted = await Promise.all([1, 2, 3].map(() => rig.send({ dedupeKey: "checkout.session.completed:cs_1" })))
    const events = await rig.service.ctx.db.selectFrom("events").select("id").where("id", "in", emitted).execute()
    expect(events).toHaveLength(1)
    await expect(
      inTransaction(rig.service.ctx, async ctx => {
        await emit(ctx, {
          merchantId: rig.merchantId,
          type: "subscription.renewal.created",
          orderKey: "x",
          data: {} as never,
        })
        throw new Error("no")
      }),
    ).rejects.toThrow("no")
    await rig.deliver()
    expect(to.received).toHaveLength(2)
  })

  it("wakes who sends it when its transaction commits, not before, and not when that is rolled back", async () => {
    const wakes = vi.spyOn(rig.service.ctx.wakes, "wakeSoon")
    const { merchantId } = rig
    const plain = { merchantId, type: "subscription.renewal.created", orderKey: "x", data: {} as never } as const
    const back = { ...plain, takesBack: ["checkout.confirmed"], onlyBack: true } as const
    for (const event of [plain, back]) {
      await inTransaction(rig.service.ctx, async ctx => {
        await emit(ctx, event)
        expect(wakes).not.toHaveBeenCalled()
      })
      expect(wakes.mock.calls).toEqual([["deliveries"]])
      wakes.mockClear()
      const failing = inTransaction(rig.service.ctx, async ctx => {
        await emit(ctx, event)
        throw new Error("no")
      })
      await expect(failing).rejects.toThrow("no")
      expect(wakes).not.toHaveBeenCalled()
    }
    wakes.mockRestore()
  })

  it("is refused for a merchant that does not exist, whatever its kind", async () => {
    const event = {
      merchantId: "mer_none",
      type: "subscription.renewal.created",
      orderKey: "x",
      data: {} as never,
    } as const
    for (const more of [{}, { callbackUrl: "https://shop.example/hook" }, { onlyTo: "c1" }])
      await expect(inTransaction(rig.service.ctx, ctx => emit(ctx, { ...event, ...more }))).rejects.toThrow(
        "merchant_id",
      )
    expect(
      await rig.service.ctx.db.selectFrom("events").where("merchant_id", "=", "mer_none").selectAll().execute(),
    ).toEqual([])
  })

  it("is sent in order for one payment, while those of other payments are sent in parallel", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    const held = Promise.withResolvers<void>()
    to.answer((response, { body }) => {
      const { n } = JSON.parse(body).data
      if (n === 1) held.promise.then(() => response.writeHead(200).end())
      else response.writeHead(200).end()
    })
    for (const n of [1, 2, 3]) await rig.send({ orderKey: "cs_1", data: { n } })
    await rig.send({ orderKey: "cs_2", data: { n: 9 } })
    expect(await rig.deliverer.round()).toBe(2)
    await to.got(3)
    expect(await rig.deliverer.round()).toBe(0)
    held.resolve()
    await rig.deliver()
    const seen = to.received.slice(1).map(({ body }) => JSON.parse(body).data.n)
    expect(seen.filter(n => n !== 9)).toEqual([1, 2, 3])
  })

  it("is claimed the later the more are claimed with it, at most 10 ms, and at once where more wait or nothing came", async () => {
    const to = [await rig.receiver(), await rig.receiver(), await rig.receiver()]
    for (const { url } of to) await rig.register(url)
    const claimed = async (events: number) => {
      for (let n = 0; n < events; n++) await rig.send()
      await rig.deliverer.round()
      const gapMs = rig.deliverer.gapMs()
      await rig.deliver()
      return [gapMs, rig.deliverer.gapMs()]
    }
    expect(await claimed(1)).toEqual([3, 0])
    expect(await claimed(10)).toEqual([10, 0])
    expect(await claimed(20)).toEqual([0, 0])
  })

  it("carries its own event, however the deliveries of many events follow each other in a claim", async () => {
    const to = [await rig.receiver(), await rig.receiver(), await rig.receiver()]
    for (const { url } of to) await rig.register(url)
    await Promise.all(Array.from({ length: 10 }, (_, n) => rig.send({ orderKey: `cs_${n}`, data: { n } })))
    await rig.deliver()
    for (const { received } of to) {
      const events = received.slice(1)
      expect(new Set(events.map(({ body }) => JSON.parse(body).data.n)).size).toBe(10)
      expect(events.map(({ body }) => JSON.parse(body).id)).toEqual(events.map(({ headers }) => headers["webhook-id"]))
    }
  })

  it("that failed delays no later one of its payment", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    to.answer((response, { body }) => response.writeHead(JSON.parse(body).data.n === 1 ? 500 : 200).end())
    for (const n of [1, 2]) await rig.send({ orderKey: "cs_1", data: { n } })
    await rig.deliver()
    const rows = await rig.service.ctx.db.selectFrom("deliveries").select("status").orderBy("seq").execute()
    expect(rows).toEqual([{ status: "pending" }, { status: "delivered" }])
  })

  it("takes turns: one endpoint has at most its own number of concurrent requests, and the others continue", async () => {
    const hangs = await rig.receiver()
    const good = await rig.receiver()
    await rig.register(hangs.url)
    await rig.register(good.url)
    const held = Promise.withResolvers<void>()
    hangs.answer(response => void held.promise.then(() => response.writeHead(200).end()))
    for (let i = 0; i < 30; i++) await rig.send()
    const { concurrencyPerEndpoint } = rig.service.ctx.settings.webhooks
    while (good.received.length < 31) {
      await rig.deliverer.round()
      await Promise.race([rig.deliverer.idle(), good.got(Math.min(31, good.received.length + 1))])
    }
    expect(hangs.received.length - 1).toBeLessThanOrEqual(concurrencyPerEndpoint)
    held.resolve()
    await rig.deliverer.idle()
  })

  it("merchants take turns too: one whose endpoints all hang takes half of the places, and another's is sent at once", async () => {
    const { ctx } = rig.service
    const hangs = await rig.receiver()
    const good = await rig.receiver()
    for (let i = 0; i < 30; i++) await rig.register(`${hangs.url}/${i}`)
    const rival = await rig.service.merchant("rival")
    await ctx.db.deleteFrom("events").execute()
    await rig.service.call("POST", "/api/console/webhooks", { url: good.url, events: ["*"] }, { as: "rival" })
    const held = Promise.withResolvers<void>()
    rig.stops.push(held.resolve)
    hangs.answer(response => void held.promise.then(() => response.writeHead(200).end()))
    const before = [hangs.received.length, good.received.length] as const
    const webhooks = { ...ctx.settings.webhooks, concurrency: 20 }
    const deliverer = openDeliverer({ ...ctx, settings: { ...ctx.settings, webhooks } }, rig.sender)
    const data = { paywallId: "x" } as never
    for (let i = 0; i < 3; i++) await rig.send()
    while ((await deliverer.round()) > 0);
    await hangs.got(before[0] + 9)
    expect(hangs.received.length - before[0]).toBe(9)
    for (let i = 0; i < 5; i++) await rig.send({ merchantId: rival, data })
    while (good.received.length < before[1] + 5) {
      await deliverer.round()
      await good.got(good.received.length + 1)
    }
    held.resolve()
    await deliverer.idle()
  })

  it.runIf(onPostgres)("is claimed and sent while those before it are still being recorded", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    for (let i = 0; i < 60; i++) await rig.send()
    const locked = Promise.withResolvers<void>()
    const recordable = Promise.withResolvers<void>()
    const locking = inTransaction(rig.service.ctx, async ({ db }) => {
      await sql`lock table delivery_attempts`.execute(db)
      locked.resolve()
      await recordable.promise
    })
    rig.stops.push(recordable.resolve)
    await locked.promise
    let woken = 0
    const wakes = { ...rig.service.ctx.wakes, wakeHere: () => void woken++ }
    const deliverer = openDeliverer({ ...rig.service.ctx, wakes }, rig.sender)
    expect(await deliverer.round()).toBe(20)
    await until("more are asked for", () => woken > 0)
    expect(await deliverer.round()).toBeGreaterThan(0)
    await to.got(1 + 21)
    const attempts = await rig.service.ctx.db.selectFrom("deliveries").select("attempts").distinct().execute()
    expect(attempts).toEqual([{ attempts: 0 }])
    recordable.resolve()
    await locking
    await deliverer.idle()
  })

  it("is measured while it is due, and while it waits for its next attempt", async () => {
    const measured = async () => {
      await measureBacklog(rig.service.ctx)
      const values = async (name: string) => (await registry.getSingleMetric(name)?.get())?.values ?? []
      const [oldest] = await values("sluice_webhook_oldest_due_seconds")
      const states = (await values("sluice_webhook_backlog")).map(({ labels, value }) => [labels.state, value])
      return { ...Object.fromEntries(states), oldest: Math.floor(oldest?.value ?? Number.NaN) }
    }
    await rig.register((await rig.receiver(500)).url)
    await rig.send()
    await rig.send()
    const since = new Date(rig.service.ctx.now().getTime() - 60_000)
    await rig.service.ctx.db.updateTable("deliveries").set({ run_at: since }).execute()
    expect(await measured()).toMatchObject({ due: 2, retry: 0, oldest: expect.closeTo(60, -1) })
    await rig.deliver()
    expect(await measured()).toEqual({ due: 0, retry: 2, oldest: 0 })
  })

  it("is kept for its time, and not longer", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    await rig.send()
    await rig.deliver()
    to.answer(500)
    await rig.send()
    rig.service.advance(90 * 24 * 60 * MINUTE - 1_000)
    await forgetOldEvents(rig.service.ctx)
    const count = async () => (await rig.service.ctx.db.selectFrom("events").select("id").execute()).length
    expect(await count()).toBe(2)
    rig.service.advance(2_000)
    await forgetOldEvents(rig.service.ctx)
    expect(await count(), "what still waits is kept").toBe(1)
    expect(await rig.service.ctx.db.selectFrom("deliveries").select("status").execute()).toEqual([
      { status: "pending" },
    ])
    expect(await rig.service.ctx.db.selectFrom("delivery_attempts").selectAll().execute()).toEqual([])
  })
})

describe("old events", () => {
  const events = async () => (await rig.service.ctx.db.selectFrom("events").select("id").execute()).length
  const makeOld = () =>
    rig.service.ctx.db
      .updateTable("events")
      .set({ created_at: new Date(0) })
      .execute()

  it("are forgotten however many there are", async () => {
    for (let n = 0; n < 3; n++)
      await sql`insert into events (id, merchant_id, type, dedupe_key, body, created_at)
        select 'evt_' || ${n} || '_' || i, ${rig.merchantId}, 'ping', 'k' || ${n} || '_' || i, '{}', '2020-01-01'
        from generate_series(1, 1000) i`.execute(rig.service.ctx.db)
    await forgetOldEvents(rig.service.ctx)
    expect(await events()).toBe(0)
  })

  it.runIf(onPostgres)("stay where a delivery is sent again at that moment", async () => {
    const { ctx } = rig.service
    await rig.register((await rig.receiver()).url)
    await rig.send()
    await rig.send()
    await rig.deliver()
    await makeOld()
    const { id } = await ctx.db.selectFrom("deliveries").select("id").limit(1).executeTakeFirstOrThrow()
    await inTransaction(ctx, async other => {
      await other.db.updateTable("deliveries").set({ status: "pending" }).where("id", "=", id).execute()
      await forgetOldEvents(ctx)
    })
    expect(await ctx.db.selectFrom("deliveries").select(["id", "status"]).execute()).toEqual([
      { id, status: "pending" },
    ])
    expect(await events()).toBe(1)
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
    rig.stops.push(() => {
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
    const to = await rig.receiver()
    await rig.register(to.url)
    arrange(to)
    await rig.send()
    await deliverWithin(words.source.includes("within") ? 2_000 : rig.service.ctx.settings.webhooks.timeoutMs)
    const { log, ...delivery } = await only()
    expect(delivery).toMatchObject({ status: "pending", attempts: 1 })
    expect(log).toEqual([expect.objectContaining({ status, error: expect.stringMatching(words) })])
  })

  it("an interim 100 that nobody asked for is explained in words", async () => {
    const answer = ["HTTP/1.1 100 Continue", "", "HTTP/1.1 200 OK", "Content-Length: 0", "", ""]
    await place(await raw(afterRequest(answer.join("\r\n"))))
    await rig.send()
    await rig.deliver()
    expect((await only()).log).toMatchObject([{ error: "it answered 100 Continue, which was not requested" }])
  })

  it("a gigabyte: its first part is kept, the rest is not read", async () => {
    let sent = 0
    const to = await rig.receiver()
    await rig.register(to.url)
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
    await rig.send()
    await rig.deliver()
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
    await rig.send()
    await rig.deliver()
    expect((await only()).log).toEqual([
      expect.objectContaining({ error: expect.stringMatching(/its answer is too large$/) }),
    ])
    expect(sent).toBeLessThan(64 * 2 ** 20)
  })

  it.each([
    ["no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", /^its answer is not HTTP$/],
    ["no status", "HTTP/1.1 000 \r\n\r\n", /^its answer is not HTTP$/],
    [
      "endless headers",
      `HTTP/1.1 200 OK\r\n${"X-A: b\r\n".repeat(10_000)}`,
      /^its answer has too many headers|not HTTP/,
    ],
  ])("%s", async (_what, text, words) => {
    await place(await raw(afterRequest(text)))
    await rig.send()
    await rig.deliver()
    expect((await only()).log).toEqual([expect.objectContaining({ status: null, error: expect.stringMatching(words) })])
  })

  it("nobody there, a name without an address, plain text where TLS is expected", async () => {
    const plain = await raw(afterRequest("HTTP/1.1 400 Bad Request\r\n\r\n"))
    for (const [url, words] of [
      ["http://127.0.0.1:1/", /^the connection was refused$/],
      ["http://nowhere.invalid/", /^the name nowhere\.invalid (has no address|can't be resolved) \(DNS says /],
      [plain.replace("http:", "https:"), /^no secure connection could be established/],
    ] as const) {
      await rig.service.ctx.db.deleteFrom("events").execute()
      await rig.service.ctx.db.deleteFrom("webhook_secrets").execute()
      await rig.service.ctx.db.deleteFrom("webhooks").execute()
      await place(url)
      await rig.send()
      await rig.deliver()
      expect((await only()).log).toEqual([
        expect.objectContaining({ status: null, error: expect.stringMatching(words) }),
      ])
    }
  })

  it("an answer that is not text is kept as far as a database can", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    to.answer(response => response.writeHead(200).end(Buffer.from([0x61, 0, 0xff, 0xfe, 0x62])))
    await rig.send()
    await rig.deliver()
    expect((await only()).log[0].answer).toBe("a\ufffd\ufffd\ufffdb")
  })
})
