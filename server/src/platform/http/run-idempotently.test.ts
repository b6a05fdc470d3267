import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { sql } from "kysely"
import { Type } from "typebox"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { openIdentities } from "../../account/identity/open-identities.ts"
import { tokenIssuer } from "../../account/identity/tokens.ts"
import { runWorker } from "../../worker.ts"
import type { TxContext } from "../context.ts"
import { routeTable } from "./route-access.ts"
import { forgetExpiredKeys, idempotently } from "./run-idempotently.ts"
import { callingMerchant, openServer, type Server } from "./server.ts"

let service: TestService
let own: Server
/** Runs in the routes of `own`, between their effect and their answer. */
let meanwhile: (ctx: TxContext) => Promise<void>

beforeAll(async () => {
  service = await startService()
  const { ctx } = service
  const urls = ["/api/console/notes/:id", "/api/console/marks/:id"]
  const row = routeTable.get("POST /api/console/paywalls")
  if (!row) throw new Error("the table has no such route")
  const rows = Object.fromEntries(urls.map(url => [`POST ${url}`, row]))
  const identities = openIdentities(ctx, tokenIssuer(service.issuer.issuer, ctx.settings.oidcAudience))
  own = openServer(ctx, identities, undefined, undefined, rows)
  const answer = Type.Object({ made: Type.String() })
  for (const url of urls)
    own.post(
      url,
      { schema: { params: Type.Object({ id: Type.String() }), response: { 200: answer } } },
      async (request, reply) => {
        const { id } = request.params
        const work = async (ctx: TxContext) => {
          await ctx.db.insertInto("installation").values({ key: id, value: url }).execute()
          await meanwhile(ctx)
          return { made: id }
        }
        return await idempotently(ctx, request, reply, await callingMerchant(request), work)
      },
    )
  await own.ready()
})
afterAll(async () => {
  await own.close()
  await service.stop()
})
beforeEach(async () => {
  meanwhile = async () => {}
  await service.empty()
  await service.merchant("shop")
})

/** Lets this many seconds pass for the keys that are there, by the database's clock. */
const passTime = (seconds: number) =>
  sql`update idempotency_keys set expires_at = expires_at - make_interval(secs => ${seconds})`.execute(service.ctx.db)
const url = "/api/console/paywalls"
const film = { name: "Film", price: 5 }
const create = (body: unknown, key?: string, as = "shop") =>
  service.call("POST", url, body, { as, headers: key === undefined ? {} : { "idempotency-key": key } })
const note = async (path: string, key: string, body?: object) =>
  await own.inject({
    method: "POST",
    url: `/api/console/${path}`,
    headers: { authorization: `Bearer ${await service.issuer.token("shop")}`, "idempotency-key": key },
    ...(body ? { payload: body } : {}),
  })

const paywalls = async () => await service.ctx.db.selectFrom("paywalls").select(["id", "name"]).execute()
const notes = async () => await service.ctx.db.selectFrom("installation").select("key").orderBy("key").execute()
const keys = async () => await service.ctx.db.selectFrom("idempotency_keys").selectAll().execute()
const replayed = { "idempotent-replayed": "true" }

/** As after a request that was cut off: the key is reserved by a dead process, and free in `seconds`. */
const cutOff = async (seconds: number) =>
  await sql`update idempotency_keys set status = null, answer = null, claim_id = gen_random_uuid(),
    lease_until = clock_timestamp() + make_interval(secs => ${seconds})`.execute(service.ctx.db)

describe("a request that is repeated with its key", () => {
  it("has no second effect and gets the first answer, whatever has changed since", async () => {
    const first = await create(film, "order-1")
    expect(first).toMatchObject({ status: 201, body: { name: "Film" } })
    expect(first.headers).not.toHaveProperty("idempotent-replayed")
    await service.call("PUT", `${url}/${first.body.id}`, { name: "Renamed" }, { as: "shop" })
    for (let i = 0; i < 2; i++) {
      const again = await create(film, "order-1")
      expect(again.status).toBe(201)
      expect(JSON.stringify(again.body)).toBe(JSON.stringify(first.body))
      expect(again.headers).toMatchObject({ ...replayed, "content-type": first.headers["content-type"] })
      expect(again.headers["content-length"]).toBe(first.headers["content-length"])
    }
    expect(await paywalls()).toEqual([{ id: first.body.id, name: "Renamed" }])
  })

  it("is the same in another order of fields and with other white space", async () => {
    const first = await create('{"name":"Film","price":5.0,"contentData":{"a":[1,{"x":1,"y":2}],"b":null}}', "order-1")
    const again = await create(
      '{ "contentData": {"b":null, "a":[1, {"y":2,"x":1}]},\n "price": 5.0, "name": "\\u0046ilm" }',
      "order-1",
    )
    expect(again).toMatchObject({ status: 201, body: { id: first.body.id }, headers: replayed })
  })

  it.each([
    ["another price", { name: "Film", price: 6 }],
    ["a price with another text", '{"name":"Film","price":5.0}'],
    ["a price that is text", { name: "Film", price: "5" }],
    ["one field more", { ...film, slug: "film" }],
    ["a field that says none", { ...film, slug: null }],
    ["another name", { name: "Film ", price: 5 }],
  ])("422 with %s, and nothing is written", async (_what, body) => {
    const first = await create(film, "order-1")
    expect(await create(body, "order-1")).toMatchObject({ status: 422, body: { error: "IDEMPOTENCY_MISMATCH" } })
    expect(await paywalls()).toEqual([{ id: first.body.id, name: "Film" }])
    expect(await create(film, "order-1")).toMatchObject({ body: { id: first.body.id }, headers: replayed })
  })

  it("422 with lists in another order: the order of a list has a meaning", async () => {
    await create({ ...film, contentData: { list: [1, 2] } }, "order-1")
    expect((await create({ ...film, contentData: { list: [2, 1] } }, "order-1")).status).toBe(422)
  })

  it("409 while the first one runs, with a time to wait; 422 even then with another body", async () => {
    await create(film, "order-1")
    await cutOff(60)
    expect(await create(film, "order-1")).toMatchObject({
      status: 409,
      body: { error: "IDEMPOTENCY_IN_PROGRESS" },
      headers: { "retry-after": "1" },
    })
    expect((await create({ ...film, price: 6 }, "order-1")).status).toBe(422)
    expect(await paywalls()).toHaveLength(1)
  })

  it("is carried out when the first one was cut off and its lease has expired", async () => {
    await create(film, "order-1")
    await service.ctx.db.deleteFrom("paywall_versions").execute()
    await service.ctx.db.deleteFrom("deposits").execute()
    await service.ctx.db.deleteFrom("paywalls").execute()
    await cutOff(-1)
    const second = await create({ ...film, name: "Other" }, "order-1")
    expect(second.status).toBe(201)
    expect(second.headers).not.toHaveProperty("idempotent-replayed")
    expect(await create({ ...film, name: "Other" }, "order-1")).toMatchObject({ body: second.body, headers: replayed })
    expect(await paywalls()).toEqual([{ id: second.body.id, name: "Other" }])
  })

  it("is carried out again after 24 hours, and not a second before", async () => {
    const first = await create(film, "order-1")
    // The process's own clock may have any value.
    service.advance(2 * 24 * 3_600_000)
    await forgetExpiredKeys(service.ctx)
    await passTime(24 * 3_600 - 60)
    expect(await create(film, "order-1")).toMatchObject({ body: { id: first.body.id }, headers: replayed })
    await passTime(60)
    const second = await create(film, "order-1")
    expect(second.status).toBe(201)
    expect(second.body.id).not.toBe(first.body.id)
    expect(await create(film, "order-1")).toMatchObject({ body: { id: second.body.id }, headers: replayed })
  })
})

describe("a key", () => {
  it("is the merchant's own", async () => {
    await service.merchant("rival")
    const answers = [await create(film, "order-1"), await create({ ...film, price: 6 }, "order-1", "rival")]
    expect(answers.map(answer => answer.status)).toEqual([201, 201])
    expect(new Set((await paywalls()).map(paywall => paywall.id)).size).toBe(2)
  })

  it("belongs to one route, and to the object that its path names", async () => {
    expect((await note("notes/a", "order-1")).json()).toEqual({ made: "a" })
    expect((await note("marks/b", "order-1")).json()).toEqual({ made: "b" })
    expect((await note("notes/b", "order-1")).json()).toMatchObject({ error: "IDEMPOTENCY_MISMATCH" })
    expect((await note("notes/a", "order-1")).headers).toMatchObject(replayed)
    expect(await notes()).toEqual([{ key: "a" }, { key: "b" }])
  })

  it("is not needed: without one each request is its own", async () => {
    const ids = [(await create(film)).body.id, (await create(film)).body.id]
    expect(new Set(ids).size).toBe(2)
    expect(await keys()).toEqual([])
  })

  it("is ignored where none is accepted, whatever it is", async () => {
    const headers = { "idempotency-key": "order 1" }
    for (const name of ["One", "Two"]) {
      const answer = await service.call("PUT", "/api/console/settings", { name }, { as: "shop", headers })
      expect(answer).toMatchObject({ status: 200, body: { name } })
    }
    expect(await keys()).toEqual([])
  })

  it("may have 255 characters, all that are visible", async () => {
    const visible = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i)).join("")
    const longest = visible.repeat(3).slice(0, 255)
    const first = await create(film, longest)
    expect(first.status).toBe(201)
    expect(await create(film, longest)).toMatchObject({ body: { id: first.body.id }, headers: replayed })
    // One character fewer is another key.
    expect((await create(film, longest.slice(0, 254))).body.id).not.toBe(first.body.id)
  })

  it.each([
    ["empty", ""],
    ["too long", "x".repeat(256)],
    ["with a space", "order 1"],
    ["with a tab", "order\t1"],
    ["with a letter beyond ASCII", "ordér-1"],
    ["sent twice", "order-1, order-2"],
  ])("400 when %s, and nothing is written", async (_what, key) => {
    expect(await create(film, key)).toMatchObject({
      status: 400,
      body: { error: "VALIDATION_ERROR", details: [{ path: "Idempotency-Key" }] },
    })
    expect([await paywalls(), await keys()]).toEqual([[], []])
  })

  it("may be sent by a console in a browser, which can read the answer's headers", async () => {
    const origin = "https://console.example"
    const open = await startService({ settings: { consoleOrigins: [origin] } })
    try {
      const preflight = await open.call("GET", url, undefined, {
        method: "OPTIONS",
        headers: {
          origin,
          "access-control-request-method": "POST",
          "access-control-request-headers": "authorization,content-type,idempotency-key",
        },
      })
      expect(preflight.headers["access-control-allow-headers"]).toContain("idempotency-key")
      const answer = await open.call("GET", url, undefined, { headers: { origin } })
      expect(answer.headers["access-control-expose-headers"]).toContain("Idempotent-Replayed")
      expect(answer.headers["access-control-expose-headers"]).toContain("Retry-After")
    } finally {
      await open.stop()
    }
  })
})

describe("an error", () => {
  it("400 releases the key, for a corrected request", async () => {
    expect((await create({ ...film, price: "0.001" }, "order-1")).status).toBe(400)
    expect(await keys()).toEqual([])
    expect((await create(film, "order-1")).status).toBe(201)
  })

  it("409 releases the key: the same request works once its cause is gone", async () => {
    const { body: rival } = await create({ ...film, slug: "film" })
    const taken = await create({ ...film, slug: "film" }, "order-1")
    expect(taken).toMatchObject({ status: 409, body: { error: "SLUG_TAKEN" } })
    expect([await paywalls(), await keys()]).toEqual([[{ id: rival.id, name: "Film" }], []])
    await service.call("PUT", `${url}/${rival.id}`, { slug: null }, { as: "shop" })
    const made = await create({ ...film, slug: "film" }, "order-1")
    expect(made).toMatchObject({ status: 201, body: { slug: "film" } })
    expect(made.headers).not.toHaveProperty("idempotent-replayed")
  })

  it("500 after the effect rolls the effect back, and the key is free", async () => {
    meanwhile = async () => {
      throw new Error("half way")
    }
    expect((await note("notes/a", "order-1")).statusCode).toBe(500)
    expect([await notes(), await keys()]).toEqual([[], []])
    meanwhile = async () => {}
    expect((await note("notes/a", "order-1")).json()).toEqual({ made: "a" })
  })
})

describe("a reservation", () => {
  it("exists before the work, for a minute of the database's clock", async () => {
    let left: unknown[] = []
    meanwhile = async ctx => {
      const { rows } = await sql<{ s: number }>`select status, answer,
        ceil(extract(epoch from lease_until - transaction_timestamp()))::int as s from idempotency_keys`.execute(ctx.db)
      left = rows
    }
    // The service's own clock may have any value.
    service.advance(40 * 86_400_000)
    await note("notes/a", "order-1")
    expect(left).toEqual([{ status: null, answer: null, s: 60 }])
  })

  it("that was lost while the work ran rolls the effect back, and leaves the other's alone", async () => {
    meanwhile = async ctx => {
      await ctx.db.updateTable("idempotency_keys").set({ claim_id: "00000000-0000-4000-8000-000000000000" }).execute()
    }
    const answer = await note("notes/a", "order-1")
    expect({ status: answer.statusCode, ...answer.json() }).toMatchObject({
      status: 409,
      error: "IDEMPOTENCY_IN_PROGRESS",
    })
    expect(await notes()).toEqual([])
  })

  it("goes to one of twenty concurrent requests; the others wait or get its answer", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => create(film, "order-1")))
    const [only, ...more] = await paywalls()
    expect(more).toEqual([])
    const first = answers.filter(answer => answer.status === 201 && !answer.headers["idempotent-replayed"])
    expect(first).toHaveLength(1)
    for (const { status, body } of answers)
      expect(status === 201 ? body.id : body.error).toBe(status === 201 ? only?.id : "IDEMPOTENCY_IN_PROGRESS")
    for (const again of await Promise.all(Array.from({ length: 20 }, () => create(film, "order-1"))))
      expect(again).toMatchObject({ status: 201, body: first[0]?.body, headers: replayed })
  })
})

describe("the worker", () => {
  it("deletes what has expired: answers after 24 hours, reservations when their lease has expired too", async () => {
    const stop = new AbortController()
    for (const key of ["old", "cut-off", "running"]) await create(film, key)
    const reserve = async (key: string, leaseUntil: Date) =>
      await service.ctx.db
        .updateTable("idempotency_keys")
        .set({
          status: null,
          answer: null,
          claim_id: "00000000-0000-4000-8000-000000000000",
          lease_until: leaseUntil,
        })
        .where("key", "=", key)
        .execute()
    await reserve("cut-off", new Date(0))
    await reserve("running", new Date(Date.now() + 3_600_000))
    await passTime(24 * 3_600)
    await create(film, "young")
    const working = runWorker({ ...service.ctx, chain: { ...service.ctx.chain, networks: [] }, signal: stop.signal })
    await until("two keys are forgotten", async () => (await keys()).length === 2)
    stop.abort()
    await working
    expect((await keys()).map(row => row.key).sort()).toEqual(["running", "young"])
  })
})

describe.runIf(onPostgres)("on Postgres, where requests run at the same time", () => {
  let open = () => {}
  // A test that failed must not leave its transaction open: the next one would wait for it.
  afterEach(() => open())

  /** Pauses the next work between its effect and its answer until `open`; resolves when it gets there. */
  function standstill(): Promise<void> {
    const reached = Promise.withResolvers<void>()
    const opened = Promise.withResolvers<void>()
    open = opened.resolve
    meanwhile = async () => {
      meanwhile = async () => {}
      reached.resolve()
      await opened.promise
    }
    return reached.promise
  }

  it("a second one is answered at once that the first is still running, and gets its answer later", async () => {
    const reached = standstill()
    const first = note("notes/a", "order-1")
    await reached
    const second = await note("notes/a", "order-1")
    expect(second.json()).toMatchObject({ error: "IDEMPOTENCY_IN_PROGRESS" })
    expect(second.headers["retry-after"]).toBe("1")
    open()
    expect((await first).json()).toEqual({ made: "a" })
    const third = await note("notes/a", "order-1")
    expect([third.json(), third.headers["idempotent-replayed"]]).toEqual([{ made: "a" }, "true"])
    expect(await notes()).toEqual([{ key: "a" }])
  })

  it("one that is slower than its lease changes nothing once another has taken over", async () => {
    const reached = standstill()
    const slow = note("notes/slow", "order-1")
    await reached
    await cutOff(-1)
    expect((await note("notes/fast", "order-1")).json()).toEqual({ made: "fast" })
    open()
    expect((await slow).json()).toMatchObject({ error: "IDEMPOTENCY_IN_PROGRESS" })
    expect((await note("notes/fast", "order-1")).headers).toMatchObject(replayed)
    expect(await notes()).toEqual([{ key: "fast" }])
  })

  it("SIGKILL between the effect and its commit: no effect, and the request works when the lease has expired", async () => {
    const body = { ...film, slug: "film" }
    const child = await killedMidway(JSON.stringify(body), "order-1")
    expect(child.signalCode).toBe("SIGKILL")
    expect(await create(body, "order-1")).toMatchObject({ status: 409, body: { error: "IDEMPOTENCY_IN_PROGRESS" } })
    expect(await paywalls()).toEqual([])
    await sql`update idempotency_keys set lease_until = clock_timestamp()`.execute(service.ctx.db)
    const second = await create(body, "order-1")
    expect(second.status).toBe(201)
    expect(await create(body, "order-1")).toMatchObject({ body: second.body, headers: replayed })
    expect(await paywalls()).toEqual([{ id: second.body.id, name: "Film" }])
  })

  /** Runs the request in another process on this database, up to its effect, and kills it there. */
  async function killedMidway(text: string, key: string): Promise<ChildProcess> {
    const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(service.ctx.db)
    const url = new URL(process.env.DATABASE_URL ?? "")
    url.pathname = `/${rows[0]?.name}`
    const merchant = await service.ctx.db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
    const at = (path: string) => JSON.stringify(new URL(path, import.meta.url).href)
    const source = `
      import { openPostgres } from ${at("../db/open.ts")}
      import { idempotently } from ${at("./run-idempotently.ts")}
      import { parseJson } from ${at("./json.ts")}
      import { createPaywall } from ${at("../../products/paywalls/manage-paywalls.ts")}
      import { paperNetwork } from ${at("../../../test/service.ts")}
      const { db } = await openPostgres(${JSON.stringify(url.href)}, () => {})
      const ctx = { db, now: () => new Date(), settings: { minAmount: "0.01" }, chain: { networks: [paperNetwork] } }
      const request = {
        method: "POST",
        headers: { "idempotency-key": ${JSON.stringify(key)} },
        routeOptions: { url: "/api/console/paywalls" },
        params: {},
        body: parseJson(${JSON.stringify(text)}),
      }
      const merchantId = ${JSON.stringify(merchant.id)}
      await idempotently(ctx, request, {}, merchantId, async ctx => {
        await createPaywall(ctx, merchantId, request.body)
        process.stdout.write("made")
        await new Promise(() => setInterval(() => {}, 1_000))
      })`
    const child = spawn(process.execPath, ["--input-type=module", "-e", source], {
      stdio: ["ignore", "pipe", "inherit"],
    })
    await Promise.race([
      once(child.stdout, "data"),
      once(child, "exit").then(() => Promise.reject(new Error("the other process ended by itself"))),
    ])
    const ended = once(child, "exit")
    child.kill("SIGKILL")
    await ended
    return child
  }
})
