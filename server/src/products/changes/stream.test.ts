// Streams of changes over real connections, beside writers whose transactions overlap. They need Postgres: the embedded database has one
// connection, so no transaction waits for another there.
import { once } from "node:events"
import { connect } from "node:net"
import { sql } from "kysely"
import pg from "pg"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { readHealth } from "../insight/read-health.ts"

interface Event {
  id: string
  name: string
  data: { kind?: string; objectId?: string; row?: object | null }
}

/** Reads the events of a stream until `take` returns true for one, or it ends. Returns the last id, where there is one. */
async function read(
  url: string,
  headers: Record<string, string>,
  lastId: string | undefined,
  take: (event: Event) => boolean,
): Promise<string | undefined> {
  const leaving = new AbortController()
  const response = await fetch(`${url}/api/console/stream`, {
    headers: { accept: "text/event-stream", ...headers, ...(lastId ? { "last-event-id": lastId } : {}) },
    signal: leaving.signal,
  })
  expect(response.status).toBe(200)
  expect(response.headers.get("x-accel-buffering")).toBe("no")
  let text = ""
  let last = lastId
  try {
    for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += new TextDecoder().decode(bytes, { stream: true })
      const parts = text.split("\n\n")
      text = parts.pop() ?? ""
      for (const event of parts.flatMap(eventsIn)) {
        last = event.id
        if (take(event)) return last
      }
    }
  } finally {
    leaving.abort()
  }
  return last
}

function eventsIn(text: string): Event[] {
  const [, id = "", name = "", data = "{}"] = /^id: (\S+)\nevent: (\w+)\ndata: (.*)$/.exec(text) ?? []
  return id === "" ? [] : [{ id, name, data: JSON.parse(data) }]
}

/** Numbers below `below` that look random and are the same at each run. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return Math.floor((state / 2 ** 31) * below)
  }
}

describe.runIf(onPostgres)("a stream of changes", () => {
  let service: TestService
  let url: string
  let databaseUrl: string
  let merchantId: string
  let headers: Record<string, string>
  beforeAll(async () => {
    service = await startService()
    url = await service.listen()
    const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(service.ctx.db)
    databaseUrl = Object.assign(new URL(process.env.DATABASE_URL ?? ""), { pathname: `/${rows[0]?.name}` }).href
  })
  afterAll(() => service.stop())
  beforeEach(async () => {
    await service.empty()
    merchantId = await service.merchant("shop")
    headers = await newKey()
  })
  const newKey = async (as = "shop") => {
    const { body } = await service.call("POST", "/api/console/api-keys", { name: "A", scopes: ["read"] }, { as })
    return { "x-api-key": body.key as string, id: body.id as string }
  }
  const insert = (from: number, to: number) =>
    sql`insert into changes (merchant_id, kind, object_id)
      select ${merchantId}, 'webhook', n::text from generate_series(${from}::int, ${to}::int) n`
  const ready = async () => (await read(url, headers, undefined, () => true)) as string

  it("has every change of eight writers once or more, in the order of commits, whatever connections break", async () => {
    const TRANSACTIONS = 40
    let clock = 0
    const written: { begunAt: number; committedAt: number; ids: string[] }[] = []
    async function write(writer: number): Promise<void> {
      const random = numbers(writer + 1)
      const client = new pg.Client(databaseUrl)
      await client.connect()
      for (let n = 0; n < TRANSACTIONS; n++) {
        const begunAt = ++clock
        const ids = Array.from({ length: 1 + random(3) }, (_, i) => `${writer}-${n}-${i}`)
        await client.query("begin")
        for (const id of ids) {
          await client.query("insert into changes (merchant_id, kind, object_id) values ($1, 'webhook', $2)", [
            merchantId,
            id,
          ])
          await client.query("select pg_sleep($1)", [random(30) / 1_000])
        }
        // What is rolled back is no change.
        if (random(10) === 0) await client.query("rollback")
        else {
          await client.query("commit")
          written.push({ begunAt, committedAt: ++clock, ids })
        }
      }
      await client.end()
    }
    async function follow(reader: number, from: string, isOver: Promise<void>): Promise<string[]> {
      const random = numbers(100 + reader)
      const seen: string[] = []
      let isWritten = false
      void isOver.then(() => (isWritten = true))
      const isWhole = () => isWritten && new Set(seen).size === written.flatMap(({ ids }) => ids).length
      for (let lastId: string | undefined = from; !isWhole(); ) {
        let left = 1 + random(25)
        lastId = await read(url, headers, lastId, ({ name, data }) => {
          expect(name).not.toBe("reset")
          if (name === "change") seen.push(data.objectId ?? "")
          return --left === 0 || isWhole()
        })
      }
      return seen
    }
    // A caller who connected before the very first change may have missed some, for all that the table can say.
    await insert(0, 0).execute(service.ctx.db)
    const from = await ready()
    const over = Promise.all(Array.from({ length: 8 }, (_, n) => write(n))).then(() => {})
    // One reader never leaves before it has all that was written when its last message came.
    const readers = [0, 1, 2].map(n => follow(n, from, over))
    await over
    // A reader that has everything already gets one more message, by which it notices.
    for (const seen of await Promise.all(readers)) {
      const order = [...new Set(seen)]
      const places = new Map(order.map((id, place) => [id, place]))
      expect(order.toSorted()).toEqual(written.flatMap(({ ids }) => ids).toSorted())
      for (const a of written)
        for (const b of written)
          if (a.committedAt < b.begunAt)
            expect(Math.max(...a.ids.map(id => places.get(id) ?? -1))).toBeLessThan(
              Math.min(...b.ids.map(id => places.get(id) ?? -1)),
            )
    }
  })

  it("has all of a transaction of 10,000 changes, and continues in its middle", async () => {
    const from = await ready()
    await insert(1, 10_000).execute(service.ctx.db)
    const seen: string[] = []
    const note = (most: number) => (event: Event) =>
      event.name === "change" && seen.push(event.data.objectId ?? "") >= most
    const middle = await read(url, headers, from, note(3_333))
    await read(url, headers, middle, note(10_000))
    expect(seen).toEqual(Array.from({ length: 10_000 }, (_, i) => `${i + 1}`))
  })

  it("waits for a transaction that stays open, shows all once it ends, and the health says so", async () => {
    const client = new pg.Client(databaseUrl)
    await client.connect()
    const from = await ready()
    const late = async () =>
      (await readHealth(service.ctx, merchantId)).alarms.filter(alarm => alarm.startsWith("Live changes"))
    try {
      await client.query("begin")
      await client.query("insert into changes (merchant_id, kind, object_id) values ($1, 'webhook', 'first')", [
        merchantId,
      ])
      await sql`insert into changes (merchant_id, kind, object_id, at) values
        (${merchantId}, 'webhook', 'second', clock_timestamp() - interval '2 minutes')`.execute(service.ctx.db)
      const { body } = await service.call("GET", `/api/console/changes?after=${from}`, undefined, { headers })
      expect([body.data, body.reset]).toEqual([[], false])
      expect(await late()).toEqual([expect.stringMatching(/^Live changes are 2 minutes late/)])
    } finally {
      // Left open, it would hold back the changes of every other test on this server.
      await client.query("commit")
      await client.end()
    }
    const seen: unknown[] = []
    await read(url, headers, from, ({ name, data }) => name === "change" && seen.push(data.objectId) === 2)
    expect(seen).toEqual(["first", "second"])
    expect(await late()).toEqual([])
  })

  it("cuts off a caller that does not read, which continues by its last id", async () => {
    const CHANGES = 80_000
    const from = await ready()
    await insert(1, CHANGES).execute(service.ctx.db)
    const { port } = new URL(url)
    const socket = connect(Number(port), "127.0.0.1")
    socket.write(
      `GET /api/console/stream HTTP/1.1\r\nhost: a\r\nx-api-key: ${headers["x-api-key"]}\r\nlast-event-id: ${from}\r\n\r\n`,
    )
    let text = ""
    socket.on("data", bytes => (text += bytes))
    // Its place is taken from here on, and it reads no more.
    await once(socket, "data")
    socket.pause()
    // Only the places that are held show that it is gone: while nobody reads, the end of a connection is not seen either.
    const places = async () => {
      // An answer that nothing refers to is closed by the garbage collector, so they are kept.
      const open: { leaving: AbortController; response: Response }[] = []
      for (let n = 0; n < 5; n++) {
        const leaving = new AbortController()
        const response = await fetch(`${url}/api/console/stream`, { headers, signal: leaving.signal })
        open.push({ leaving, response })
      }
      for (const { leaving } of open) leaving.abort()
      return open.filter(({ response }) => response.status === 200).length
    }
    await expect.poll(places, { timeout: 5_000 }).toBe(4)
    await expect.poll(places, { timeout: 120_000, interval: 500 }).toBe(5)
    socket.resume()
    await once(socket, "close")
    const ids = [...text.matchAll(/id: (\S+)\nevent: change\ndata: .*"objectId":"(\d+)".*\n\n/g)]
    const [, lastId, lastObject] = ids.at(-1) ?? []
    expect(ids.length).toBeGreaterThan(100)
    expect(ids.length).toBeLessThan(CHANGES)
    expect(ids.map(([, , id]) => id)).toEqual(ids.map((_, i) => `${i + 1}`))
    let next = Number(lastObject)
    await read(url, headers, lastId, ({ name, data }) => {
      if (name === "change") expect(data.objectId).toBe(`${++next}`)
      return next === CHANGES
    })
    expect(next).toBe(CHANGES)
  })

  it("serves 200 merchants, each its own changes alone, by one reader", async () => {
    const merchants = await Promise.all(
      Array.from({ length: 200 }, async (_, n) => {
        const id = await service.merchant(`m${n}`)
        return { id, key: await newKey(`m${n}`) }
      }),
    )
    const isReady = merchants.map(() => Promise.withResolvers<void>())
    const seen = merchants.map(async ({ id, key }, n) => {
      const got: unknown[] = []
      await read(url, key, undefined, ({ name, data }) => {
        if (name === "ready") isReady[n]?.resolve()
        return name === "change" && got.push(data.objectId) === 3
      })
      return [id, got]
    })
    await Promise.all(isReady.map(({ promise }) => promise))
    for (const n of [1, 2, 3])
      await sql`insert into changes (merchant_id, kind, object_id)
        select id, 'webhook', id || ${`-${n}`} from merchants where id <> ${merchantId}`.execute(service.ctx.db)
    for (const [id, got] of await Promise.all(seen)) expect(got).toEqual([1, 2, 3].map(n => `${id}-${n}`))
  })

  it("says to a caller whose place is gone that it has to read again, and counts streams by person and merchant", async () => {
    const from = await ready()
    const events: Event[] = []
    await read(url, headers, `0000${from.slice(4)}`.replace(/^.{8}/, "00000000"), event => events.push(event) === 1)
    expect(events.map(({ name }) => name)).toEqual(["reset"])
    const leaving = new AbortController()
    const ask = (headers: Record<string, string>) =>
      fetch(`${url}/api/console/stream`, { headers, signal: leaving.signal })
    // An answer that nothing refers to is closed by the garbage collector, so they are kept.
    const open: Response[] = []
    for (let n = 0; n < 5; n++) open.push(await ask(headers))
    const refused = await ask(headers)
    open.push(await ask(await newKey()))
    expect([...open, refused].map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200, 429])
    expect(await refused.json()).toMatchObject({ error: "RATE_LIMITED" })
    leaving.abort()
  })

  it("ends when its key is revoked", async () => {
    let isReady = () => {}
    const ended = read(url, headers, undefined, () => {
      isReady()
      return false
    }).then(
      () => "ended",
      () => "ended",
    )
    await new Promise<void>(resolve => (isReady = resolve))
    await service.call("DELETE", `/api/console/api-keys/${headers.id}`, undefined, { as: "shop" })
    expect(await ended).toBe("ended")
    expect((await fetch(`${url}/api/console/stream`, { headers })).status).toBe(401)
  })
})
