// Listeners: who may make one, what is pulled and how it is signed, what a report does, and when one ends.

import { sql } from "kysely"
import { Webhook } from "standardwebhooks"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type DeliveryRig, startDeliveryRig } from "../../../test/deliveries.ts"
import { until } from "../../../test/e2e/program.ts"
import { freeLeases } from "../../platform/jobs/claim.ts"
import { skipRest } from "../webhooks/skip-deliveries.ts"
import { endLeftListeners } from "./manage-listeners.ts"

const base = "/api/console/listeners"
const as = "shop"
const RENEWAL = "subscription.renewal.created"

let rig: DeliveryRig
beforeAll(async () => {
  rig = await startDeliveryRig()
})
afterAll(() => rig?.stop())
beforeEach(() => rig.begin())
afterEach(() => rig.end())

const call = (method: "GET" | "POST" | "PUT" | "DELETE", url: string, body?: unknown, who = as) =>
  rig.service.call(method, url, body, { as: who })
/** Makes one; without the notices of it, which other listeners get like any endpoint. */
const make = async (more: object = {}) => {
  const { status, body } = await call("POST", base, { events: [RENEWAL], ...more })
  expect(status, JSON.stringify(body)).toBe(201)
  await rig.service.ctx.db.deleteFrom("events").where("type", "=", "settings.webhook_changed").execute()
  return body as { id: string; secret: string }
}
const pull = async (id: string) => (await call("GET", `${base}/${id}/deliveries?wait=0`)).body.data
const report = (id: string, results: object[]) => call("POST", `${base}/${id}/results`, results)
const done = ({ deliveryId, attempt }: { deliveryId: string; attempt: number }, more: object = { status: 200 }) => ({
  deliveryId,
  attempt,
  durationMs: 5,
  ...more,
})
const read = async (id: string) => (await call("GET", `/api/console/deliveries/${id}`)).body.data
const notices = () =>
  rig.service.ctx.db.selectFrom("events").where("type", "=", "settings.webhook_changed").select("body").execute()
const dueNow = () => sql`update deliveries set run_at = created_at where status = 'pending'`.execute(rig.service.ctx.db)
const endLeases = () =>
  sql`update deliveries set lease_until = clock_timestamp() - interval '1 second' where lease_until is not null`.execute(
    rig.service.ctx.db,
  )

describe("a listener", () => {
  it("has named events and a secret that is shown once, and every endpoint is notified of it", async () => {
    const to = await rig.receiver()
    await rig.register(to.url)
    const { body: made } = await call("POST", base, { events: [RENEWAL], description: "ann's laptop" })
    expect(made).toMatchObject({
      id: expect.stringMatching(/^lsn_/),
      secret: expect.stringMatching(/^whsec_/),
      callbacks: false,
    })
    const { body } = await call("GET", base)
    expect(body).toMatchObject({ data: [{ id: made.id, events: [RENEWAL], description: "ann's laptop" }], total: 1 })
    expect(JSON.stringify(body)).not.toContain(made.secret)
    const [{ body: notice = "" } = {}] = await notices()
    expect(JSON.parse(notice).data).toMatchObject({ change: "added", webhookId: made.id, url: `listener:${made.id}` })
    await rig.deliver()
    expect(to.received.map(each => JSON.parse(each.body).event)).toContain("settings.webhook_changed")
  })

  it("can't subscribe to `*`, and a merchant has three at most", async () => {
    expect(await call("POST", base, { events: ["*"] })).toMatchObject({ status: 400 })
    for (let i = 0; i < 3; i++) await make()
    const { status, body } = await call("POST", base, { events: [RENEWAL] })
    expect([status, JSON.stringify(body.details)]).toEqual([400, expect.stringContaining("already have 3")])
    const [{ id = "" } = {}] = (await call("GET", base)).body.data
    expect((await call("DELETE", `${base}/${id}`)).body).toEqual({ deleted: true, id })
    await make()
  })

  it("is no webhook: not listed among them, nor changed, tested or rolled as one, and takes none of their places", async () => {
    const { id } = await make()
    const hooks = "/api/console/webhooks"
    expect((await call("GET", hooks)).body.data.webhooks).toEqual([])
    for (const [method, url] of [
      ["GET", `${hooks}/${id}`],
      ["DELETE", `${hooks}/${id}`],
      ["POST", `${hooks}/${id}/test`],
      ["POST", `${hooks}/${id}/roll-secret`],
    ] as const)
      expect((await call(method, url, method === "POST" ? {} : undefined)).status).toBe(404)
  })

  it("is nobody else's", async () => {
    const { id } = await make()
    await rig.send()
    await rig.service.merchant("other")
    const foreign = [
      await call("GET", `${base}/${id}/deliveries?wait=0`, undefined, "other"),
      await call(
        "POST",
        `${base}/${id}/results`,
        [{ deliveryId: `dlv_${"a".repeat(24)}`, attempt: 1, status: 200, durationMs: 1 }],
        "other",
      ),
      await call("DELETE", `${base}/${id}`, undefined, "other"),
    ]
    expect(foreign.map(({ status }) => status)).toEqual([404, 404, 404])
    expect((await call("GET", base, undefined, "other")).body.data).toEqual([])
    // Another merchant's own listener reports nothing of this one's deliveries.
    const own = (await call("POST", base, { events: [RENEWAL] }, "other")).body
    const [one] = await pull(id)
    expect((await call("POST", `${base}/${own.id}/results`, [done(one)], "other")).body).toEqual({ recorded: 0 })
    expect((await read(one.deliveryId)).status).toBe("pending")
  })

  it("needs the merchant's word in live mode, where it copies no callbacks, and ends when that is taken back", async () => {
    const { settings } = rig.service.ctx
    const { mode } = settings
    settings.mode = "live"
    try {
      expect(await call("POST", base, { events: [RENEWAL] })).toMatchObject({
        status: 409,
        body: { error: "INVALID_OPERATION" },
      })
      expect((await call("GET", "/api/console/settings")).body.liveListeners).toBe(false)
      expect((await call("PUT", "/api/console/settings", { liveListeners: true })).body.liveListeners).toBe(true)
      expect((await call("POST", base, { events: [RENEWAL], callbacks: true })).status).toBe(400)
      const { id } = await make()
      await call("PUT", "/api/console/settings", { liveListeners: false })
      expect((await call("GET", `${base}/${id}/deliveries?wait=0`)).status).toBe(404)
    } finally {
      settings.mode = mode
    }
  })
})

describe("a pull", () => {
  it("gives the exact bytes with headers that the secret verifies, signed when it is pulled", async () => {
    const { id, secret } = await make()
    const eventId = await rig.send({ data: { text: "größe ✓" } })
    await sql`update deliveries set created_at = created_at - interval '1 hour'`.execute(rig.service.ctx.db)
    const [one, ...others] = await pull(id)
    expect(others).toEqual([])
    expect(one).toMatchObject({ attempt: 1, event: RENEWAL, callbackUrl: null })
    const body = Buffer.from(one.body, "base64").toString()
    expect(new Webhook(secret).verify(body, one.headers)).toMatchObject({ id: eventId, data: { text: "größe ✓" } })
    expect(one.headers["idempotency-key"]).toBe(one.deliveryId)
    const stored = await rig.service.ctx.db
      .selectFrom("events")
      .select("body")
      .where("id", "=", eventId)
      .executeTakeFirstOrThrow()
    expect(body).toBe(stored.body)
  })

  it("is not what a worker takes, nor is a delivery given twice under one lease", async () => {
    const { id } = await make()
    await rig.send()
    await rig.deliver()
    const [one] = await pull(id)
    expect(await pull(id)).toEqual([])
    // A service that starts frees what its own processes held.
    await freeLeases(rig.service.ctx.db)
    expect(await pull(id)).toEqual([])
    await endLeases()
    await rig.deliver()
    expect((await pull(id)).map((each: { deliveryId: string }) => each.deliveryId)).toEqual([one.deliveryId])
  })

  it("leaves at most ten without a result, however many pull at once, and gives each to one of them", async () => {
    const { id } = await make()
    for (let i = 0; i < 25; i++) await rig.send()
    const seen: { deliveryId: string; attempt: number }[] = []
    for (const expected of [10, 10, 5, 0]) {
      const found = (await Promise.all([pull(id), pull(id), pull(id)])).flat()
      expect(found).toHaveLength(expected)
      seen.push(...found)
      if (found.length > 0)
        expect(
          (
            await report(
              id,
              found.map(each => done(each)),
            )
          ).body,
        ).toEqual({ recorded: expected })
    }
    expect(new Set(seen.map(({ deliveryId }) => deliveryId)).size).toBe(25)
  })

  it("gives an event of a payment only after an earlier one was tried", async () => {
    const { id } = await make()
    const first = await rig.send({ orderKey: "cs_1" })
    const second = await rig.send({ orderKey: "cs_1" })
    const idsOf = (pulled: { headers: Record<string, string> }[]) => pulled.map(({ headers }) => headers["webhook-id"])
    const pulled = await pull(id)
    expect(idsOf(pulled)).toEqual([first])
    await report(id, [done(pulled[0], { status: 500 })])
    expect(idsOf(await pull(id))).toEqual([second])
  })

  it("waits until something is due", async () => {
    const { id } = await make()
    const waiting = call("GET", `${base}/${id}/deliveries?wait=25`)
    await rig.send()
    expect((await waiting).body.data).toHaveLength(1)
  })

  it("as a stream gives what is due and what follows, and ends with the listener", async () => {
    const { id } = await make()
    const eventId = await rig.send()
    const authorization = `Bearer ${await rig.service.issuer.token(as)}`
    const answer = await fetch(`${await rig.service.listen()}${base}/${id}/deliveries`, {
      headers: { authorization, accept: "text/event-stream" },
    })
    expect(answer.headers.get("content-type")).toContain("text/event-stream")
    let text = ""
    const reading = (async () => {
      for await (const chunk of answer.body ?? []) text += Buffer.from(chunk).toString()
    })()
    const given = () => [...text.matchAll(/^event: delivery\ndata: (.*)$/gm)].map(([, json = ""]) => JSON.parse(json))
    await until("the first came", () => given().length === 1)
    const second = await rig.send()
    await until("the second came", () => given().length === 2)
    expect(given().map(({ headers }) => headers["webhook-id"])).toEqual([eventId, second])
    await call("DELETE", `${base}/${id}`)
    await rig.send()
    await reading
    expect(text).toContain("event: over\n")
  })
})

describe("a stream", () => {
  it("is cut when the key that it was opened with is revoked", async () => {
    const { id } = await make()
    const { body: key } = await call("POST", "/api/console/api-keys", { name: "laptop", scopes: ["webhooks"] })
    const answer = await fetch(`${await rig.service.listen()}${base}/${id}/deliveries`, {
      headers: { "x-api-key": key.key, accept: "text/event-stream" },
    })
    expect(answer.status).toBe(200)
    const cut = answer.text().then(
      () => "ended",
      () => "cut",
    )
    await call("DELETE", `/api/console/api-keys/${key.id}`)
    expect(await cut).toBe("cut")
    const { status } = await fetch(`${await rig.service.listen()}${base}/${id}/deliveries`, {
      headers: { "x-api-key": key.key },
    })
    expect(status).toBe(401)
  })

  it("needs the scope that sends events again: a key that only reads takes nothing", async () => {
    const { id } = await make()
    const { body: key } = await call("POST", "/api/console/api-keys", { name: "reader", scopes: ["read"] })
    const asked = async (path: string) =>
      (await fetch((await rig.service.listen()) + path, { headers: { "x-api-key": key.key } })).status
    expect([await asked(base), await asked(`${base}/${id}/deliveries`)]).toEqual([200, 403])
  })
})

describe("a report", () => {
  it("delivers, or is retried like any delivery, and the log has what the receiver answered", async () => {
    const { id } = await make()
    await rig.send()
    const [one] = await pull(id)
    expect((await report(id, [done(one, { status: 500, answer: "no such table" })])).body).toEqual({ recorded: 1 })
    expect(await read(one.deliveryId)).toMatchObject({
      status: "pending",
      attempts: 1,
      url: `listener:${id}`,
      log: [{ status: 500, error: "answered 500", durationMs: 5, answer: "no such table" }],
    })
    expect(await pull(id)).toEqual([])
    await dueNow()
    const [again] = await pull(id)
    expect(again).toMatchObject({ deliveryId: one.deliveryId, attempt: 2 })
    await report(id, [done(again, { error: "the connection was refused" })])
    await dueNow()
    const [last] = await pull(id)
    await report(id, [done(last, { status: 204 })])
    const { status, log } = await read(one.deliveryId)
    expect([status, log.map((each: { error: string | null }) => each.error)]).toEqual([
      "delivered",
      ["answered 500", "the connection was refused", null],
    ])
  })

  it("changes nothing when it is repeated, is of an attempt before, of nothing pulled, or says neither status nor error", async () => {
    const { id } = await make()
    await rig.send()
    const { id: unpulled = "" } =
      (await rig.service.ctx.db.selectFrom("deliveries").select("id").executeTakeFirst()) ?? {}
    expect((await report(id, [done({ deliveryId: unpulled, attempt: 1 })])).body).toEqual({ recorded: 0 })
    const [one] = await pull(id)
    await report(id, [done(one, { status: 500 })])
    await dueNow()
    const [again] = await pull(id)
    expect((await report(id, [done(one)])).body).toEqual({ recorded: 0 })
    expect((await report(id, [done(again), done(again)])).body).toEqual({ recorded: 1 })
    expect((await report(id, [done(again)])).body).toEqual({ recorded: 0 })
    expect((await read(one.deliveryId)).log).toHaveLength(2)
    await rig.send()
    const [next] = await pull(id)
    await report(id, [done(next, {})])
    expect((await read(next.deliveryId)).log).toMatchObject([{ status: null, error: "no answer" }])
    expect((await report(id, Array(101).fill(done(next)))).status).toBe(400)
  })

  it("of one that was sent again while it was pulled is taken, and a resend of a delivered one arrives", async () => {
    const { id } = await make()
    await rig.send()
    const [one] = await pull(id)
    await report(id, [done(one, { status: 500 })])
    await dueNow()
    const [second] = await pull(id)
    await call("POST", `/api/console/deliveries/${one.deliveryId}/resend`, {})
    expect((await report(id, [done(second)])).body).toEqual({ recorded: 1 })
    expect((await read(one.deliveryId)).status).toBe("delivered")
    await call("POST", `/api/console/deliveries/${one.deliveryId}/resend`, {})
    const [resent] = await pull(id)
    expect(resent).toMatchObject({ deliveryId: one.deliveryId, attempt: 1 })
    await report(id, [done(resent)])
    expect((await read(one.deliveryId)).log).toHaveLength(3)
  })
})

describe("copies of callbacks", () => {
  it("go to the listener, marked, and the original is sent", async () => {
    const to = await rig.receiver()
    const { id } = await make({ callbacks: true, events: ["payment.refunded"] })
    const plain = await make({ events: [RENEWAL] })
    const url = `${to.url}/own?a=1`
    const alone = await rig.send({ callbackUrl: url })
    const takes = await rig.send({ callbackUrl: url, takesBack: ["checkout.failed"] })
    await rig.deliver()
    expect(to.received.map(each => JSON.parse(each.body).id)).toEqual([alone, takes])
    const pulled = await pull(id)
    expect(pulled.map((each: { callbackUrl: string }) => each.callbackUrl)).toEqual([url, url])
    expect(pulled[0].headers).toMatchObject({ "service-copy-of": url, "webhook-id": alone })
    expect(Buffer.from(pulled[0].body, "base64").toString()).toBe(to.received[0]?.body)
    expect(await pull(plain.id)).toEqual([])
    const reports = await report(
      id,
      pulled.map((each: never) => done(each, { status: 500 })),
    )
    expect(reports.body).toEqual({ recorded: 2 })
    expect((await call("GET", "/api/console/deliveries?status=delivered")).body.data).toHaveLength(2)
  })
})

describe("a listener that nobody pulls", () => {
  it("ends after ten minutes, and what is open becomes skipped; one that is pulled stays", async () => {
    const { db } = rig.service.ctx
    const left = await make()
    const kept = await make()
    for (let i = 0; i < 3; i++) await rig.send()
    await pull(left.id)
    const age = (id: string, seconds: number) =>
      sql`update webhooks set pulled_at = clock_timestamp() - make_interval(secs => ${seconds}) where id = ${id}`.execute(
        db,
      )
    await age(left.id, 590)
    await age(kept.id, 601)
    await pull(kept.id)
    await endLeftListeners(rig.service.ctx)
    expect((await call("GET", base)).body.total).toBe(2)
    await age(left.id, 601)
    // The service's own clock decides nothing.
    await endLeftListeners(rig.service.ctx)
    expect((await call("GET", base)).body.data.map((each: { id: string }) => each.id)).toEqual([kept.id])
    const of = async (id: string) =>
      (await call("GET", `/api/console/deliveries?webhookId=${id}`)).body.data.map(
        (each: { status: string }) => each.status,
      )
    expect(await of(left.id)).toEqual(["skipped", "skipped", "skipped"])
    expect(await of(kept.id)).toEqual(["pending", "pending", "pending"])
    expect(
      (await report(left.id, [{ deliveryId: `dlv_${"a".repeat(24)}`, attempt: 1, status: 200, durationMs: 1 }])).status,
    ).toBe(404)
    await rig.send()
    expect(await of(left.id)).toHaveLength(3)
    await sql`update deliveries set status = 'pending' where webhook_id = ${left.id}`.execute(db)
    await skipRest(rig.service.ctx)
    expect(await of(left.id)).toEqual(["skipped", "skipped", "skipped"])
  })
})
