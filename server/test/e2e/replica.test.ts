/**
 * Lists and public reads from a streaming replica, through two API processes: nobody reads less than was committed before he asked,
 * whatever the replica does, and it is used again by itself.
 */
import { queryObjects } from "node:v8"
import { sql } from "kysely"
import pg from "pg"
import { pino } from "pino"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { alarmsNow } from "../../src/operations/doctor/list-alarms.ts"
import { reading } from "../../src/platform/context.ts"
import { clientOf, hostsOf } from "../../src/platform/db/hosts.ts"
import { openPostgres } from "../../src/platform/db/open.ts"
import { openReplica, type Replica, replicaFault } from "../../src/platform/db/open-replica.ts"
import { DatabaseUnavailable } from "../../src/platform/db/pool.ts"
import { registry } from "../../src/platform/metrics.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { startService, type TestService } from "../service.ts"
import { until } from "./program.ts"

/** More than a busy machine needs, and what a read of a paused replica takes here once. */
const MAX_LAG_MS = 2_000
const onError = () => {}
const log = pino({ level: "silent" })

describe.runIf(postgresBinaries() || process.env.CI)("a replica for reads", () => {
  let primary: TestPostgres
  let standby: TestPostgres
  let services: TestService[] = []
  let key: Record<string, string>
  /** Each process is another one for the metrics, and a program of its own in production. */
  const start = async (): Promise<TestService> => {
    const database = await openPostgres(primary.url, onError)
    const replica = openReplica({ url: standby.url, maxLagMs: MAX_LAG_MS }, database.db, log)
    return await startService({ database, replica })
  }
  beforeAll(async () => {
    primary = await startPostgres({ durable: true })
    const database = await openPostgres(primary.url, onError)
    await database.close()
    standby = await startPostgres({ durable: true, replicaOf: primary })
    services = [await start(), await start()]
    const [one] = services as [TestService]
    await one.merchant("shop")
    const made = await one.call("POST", "/api/console/api-keys", { name: "server" }, { as: "shop" })
    key = { "x-api-key": made.body.key }
    await used()
  })
  afterAll(async () => {
    await Promise.all(services.map(service => service.stop()))
    await standby.stop()
    await primary.stop()
  })

  const replicaOf = ({ ctx }: TestService): Replica => {
    if (!ctx.replica) throw new Error("no replica")
    return ctx.replica
  }
  const used = () =>
    until("the replica is used", () => services.every(service => replicaOf(service).trouble() === undefined))
  const on = async (url: string, statement: string) => {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    return (await client.query(statement).finally(() => client.end())).rows
  }
  const onStandby = (statement: string) => on(standby.url, statement)
  /** How many reads the replica served, and the primary in its place. */
  const served = async (by: "replica" | "primary"): Promise<number> => {
    const metric = await registry.getSingleMetric("sluice_replica_reads_total")?.get()
    return metric?.values.find(({ labels }) => (labels as { served?: string }).served === by)?.value ?? 0
  }
  /** A merchant's server makes a checkout through one process; it lists it, and its payer opens it, through the other. */
  const writeAndRead = async (): Promise<void> => {
    const [one, two] = services as [TestService, TestService]
    const made = await one.call("POST", "/api/checkouts", { amount: "5", description: "A thing" }, { headers: key })
    expect(made.status).toBe(201)
    const list = await two.call("GET", "/api/checkouts?limit=1", undefined, { headers: key })
    expect(list.body.data[0]?.id).toBe(made.body.id)
    expect((await two.call("GET", `/api/pay/status/${made.body.id}`)).body.status).toBe("pending")
    expect((await two.call("GET", `/pay/${made.body.id}`)).status).toBe(200)
  }

  it("shows each write to whoever asks after it, and serves most reads", async () => {
    const [one] = services as [TestService]
    const before = await served("replica")
    for (let i = 0; i < 10; i++) await writeAndRead()
    await used()
    expect(await served("replica")).toBeGreaterThan(before)
    const { db } = await reading(one.ctx)
    const { rows } = await sql<{ standby: boolean }>`select pg_is_in_recovery() as standby`.execute(db)
    expect(rows[0]?.standby).toBe(true)
  })

  it("is still used when the log's segment was closed and nothing follows", async () => {
    const [one] = services as [TestService]
    for (let i = 0; i < 3; i++) {
      await sql`select pg_switch_wal()`.execute(one.ctx.db)
      expect(await one.ctx.replica?.reading()).not.toBe(one.ctx.db)
    }
  })

  it("is left out while its replay is paused, with an alarm, and used again when it goes on", async () => {
    const [, two] = services as [TestService, TestService]
    await onStandby("select pg_wal_replay_pause()")
    for (let i = 0; i < 3; i++) await writeAndRead()
    expect(replicaOf(two).trouble()).toMatch(/more than 2000 ms behind/)
    expect(await alarmsNow(two.ctx)).toContainEqual(expect.stringMatching(/^replica: left out/))
    expect(await registry.getSingleMetricAsString("sluice_replica_used")).toMatch(/ 0$/)
    // What the replica has is older: to show it would be wrong.
    expect((await onStandby("select count(*)::int as n from checkout_sessions"))[0]).toEqual({ n: 10 })
    await onStandby("select pg_wal_replay_resume()")
    await used()
    const before = await served("replica")
    await writeAndRead()
    await until("it serves", async () => {
      await two.call("GET", "/api/checkouts", undefined, { headers: key })
      return (await served("replica")) > before
    })
  })

  it("answers from the primary what a replica that stands still has begun, and serves while it is gone", async () => {
    const [one] = services as [TestService]
    const { db } = await reading(one.ctx)
    const slow = sql<{
      standby: boolean
    }>`select pg_is_in_recovery() as standby, pg_sleep(case when pg_is_in_recovery() then 9 else 0 end)`
    const begun = slow.execute(db)
    await until(
      "begun",
      async () => (await onStandby("select 1 from pg_stat_activity where wait_event = 'PgSleep'")).length > 0,
    )
    standby.pause()
    expect((await begun).rows[0]?.standby).toBe(false)
    await writeAndRead()
    standby.resume()
    await used()
    await standby.kill()
    for (let i = 0; i < 3; i++) await writeAndRead()
    await standby.start()
    await used()
    await writeAndRead()
  })

  it("keeps nothing of what it has read", async () => {
    const [one] = services as [TestService]
    const { db } = await reading(one.ctx)
    const read = async (times: number) => {
      for (let i = 0; i < times; i++) {
        const { rows } = await sql<{ standby: boolean }>`select pg_is_in_recovery() as standby`.execute(db)
        expect(rows).toEqual([{ standby: true }])
      }
      // After a collection of what nobody holds.
      return queryObjects(Promise, { format: "count" })
    }
    const before = await read(10)
    // Each statement once left a promise on one that lives as long as the replica is used.
    expect((await read(200)) - before).toBeLessThan(100)
  })

  it("takes neither writes nor transactions", async () => {
    const [one] = services as [TestService]
    const { db } = await reading(one.ctx)
    await expect(db.deleteFrom("paywalls").execute()).rejects.toThrow(/only reads/)
    await expect(db.transaction().execute(async () => {})).rejects.toThrow(/only reads/)
  })

  it("is refused where it is no replica of this database", async () => {
    const [one] = services as [TestService]
    const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(one.ctx.db)).rows
    const fault = (url: string) => replicaFault({ url, maxLagMs: MAX_LAG_MS }, query)
    expect(await fault(standby.url)).toBeUndefined()
    expect(await fault(primary.url)).toMatch(/takes writes/)
    expect(await fault(Object.assign(new URL(standby.url), { pathname: "/template1" }).href)).toMatch(
      /another database/,
    )
    expect(await fault("postgres://sluice@127.0.0.1:1/postgres")).toMatch(/can't be queried/)
    // Of a primary whose log was lost in part: it is behind what the replica had replayed before.
    const behind = async (text: string) => (await query(text)).map(row => ({ ...row, position: 1n }))
    expect(await replicaFault({ url: standby.url, maxLagMs: MAX_LAG_MS }, behind)).toMatch(
      /data that the primary never had/,
    )
  })

  it("is still used when statements take too long, and when all its connections are taken by such", async () => {
    const [{ ctx }] = services as [TestService]
    // Busy as it is, it answers half a second after its own deadline.
    await sql`create function slow() returns void language plpgsql as $$ begin perform pg_sleep(60);
      exception when query_canceled then perform pg_sleep(0.5); raise; end $$`.execute(ctx.db)
    const deadlines = { connectMs: 2_000, statementMs: 3_500, lockMs: 1_000 }
    const replica = openReplica({ url: standby.url, maxLagMs: MAX_LAG_MS }, ctx.db, log, deadlines)
    try {
      await until("it is used", () => replica.trouble() === undefined)
      const db = await replica.reading()
      const slow = Promise.allSettled(Array.from({ length: 10 }, () => sql`select slow()`.execute(db)))
      await expect(sql`select 1`.execute(db)).rejects.toThrow(/^the database is not available: timeout exceeded/)
      expect(replica.trouble()).toBeUndefined()
      // The replica ended each, and nobody repeated it on the primary, where it would be as slow.
      for (const each of await slow)
        expect(each).toMatchObject({ reason: { name: "DatabaseUnavailable", cause: { code: "57014" } } })
      expect(replica.trouble()).toBeUndefined()
    } finally {
      await replica.close()
    }
  })

  it("is left out for long where a file is damaged, as its checks read none", async () => {
    const [{ ctx }] = services as [TestService]
    await sql`create function damaged() returns int language plpgsql as $$ begin
      if pg_is_in_recovery() then raise 'a page is invalid' using errcode = 'XX001'; end if; return 1; end $$`.execute(
      ctx.db,
    )
    let asked = 0
    const counting = ctx.db.withPlugin({
      transformQuery: ({ node }) => node,
      transformResult: async ({ result }) => {
        asked++
        return result
      },
    })
    const replica = openReplica({ url: standby.url, maxLagMs: MAX_LAG_MS }, counting, log)
    try {
      await until("it is used", () => replica.trouble() === undefined)
      const { rows } = await sql`select damaged()`.execute(await replica.reading())
      expect(rows).toEqual([{ damaged: 1 }])
      const before = asked
      await until("it was checked as often as it takes otherwise", () => asked > before + 4)
      expect(replica.trouble()).toMatch(/damaged: a page is invalid/)
      expect(await replica.reading()).toBe(counting)
    } finally {
      await replica.close()
    }
  })

  it("takes the primary's place, with all that was answered, where commits waited for it", async () => {
    const [one] = services as [TestService]
    await sql`alter system set synchronous_standby_names = '*'`.execute(one.ctx.db)
    await sql`select pg_reload_conf()`.execute(one.ctx.db)
    await until("commits wait for the replica", async () => {
      const { rows } = await sql`select 1 from pg_stat_replication where sync_state = 'sync'`.execute(one.ctx.db)
      return rows.length === 1
    })
    const hosts = [primary, standby].map(({ url }) => new URL(url).host)
    const url = `postgres://sluice@${hosts.join(",")}/postgres?target_session_attrs=read-write`
    const service = await startService({ database: await openPostgres(url, onError) })
    services.push(service)
    const make = (n: number) =>
      service.call("POST", "/api/checkouts", { amount: "5" }, { headers: { ...key, "idempotency-key": `order-${n}` } })
    const answered: string[] = []
    for (let n = 0; n < 5; n++) answered.push((await make(n)).body.id)
    await primary.kill()
    expect((await make(5)).status).toBe(503)
    await standby.promote()
    // Each order again, as a merchant's server does after a 503.
    for (let n = 0; n < 6; n++) {
      let found = await make(n)
      await until("it is answered", async () => {
        if (found.status === 503) found = await make(n)
        return found.status !== 503
      })
      expect(found.status).toBe(201)
      if (n < 5) expect(found.body.id).toBe(answered[n])
    }
    // Both pools and the line that listens found the host that takes writes, and the other one is no primary.
    const { rows } = await sql<{ standby: boolean }>`select pg_is_in_recovery() as standby`.execute(service.ctx.db)
    expect(rows[0]?.standby).toBe(false)
    expect(await replicaFault({ url: standby.url, maxLagMs: MAX_LAG_MS }, onStandby)).toMatch(/takes writes/)

    // The old primary comes back and takes writes, too. Nothing is sent there, though the new one is lost.
    await primary.start()
    await standby.kill()
    // The first may only notice that its connection is lost.
    for (let n = 0; n < 3; n++) expect((await make(6)).status).toBe(503)
    await standby.start()
    await until("the new primary answers", async () => (await make(6)).status === 201)
    // For the tests below.
    await on(primary.url, "alter system reset synchronous_standby_names")
    await on(primary.url, "select pg_reload_conf()")
  })

  it("was promoted beside a primary that goes on: whoever sees it has no connection to the other any more", async () => {
    // By another address, of which nothing is known yet.
    const hosts = [primary, standby].map(({ url }) => new URL(url).host)
    const url = `postgres://sluice@${hosts.join(",")}/postgres?application_name=split`
    const errors: string[] = []
    const database = await openPostgres(url, error => void errors.push(error.message))
    const seen = Promise.withResolvers<void>()
    const atPrimary = async () =>
      (await on(primary.url, "select 1 from pg_stat_activity where application_name = 'split'")).length
    try {
      await database.listen({ notified: () => {}, missed: () => {} })
      await until("it listens", () => database.isListening())
      const begun = database.db.transaction().execute(async db => {
        await sql`create table lost ()`.execute(db)
        await seen.promise
      })
      // One in a transaction, one that is idle, and the one of LISTEN.
      await until("all are at the primary", async () => (await atPrimary()) === 3)
      const others = hostsOf(url)
      others.leave(others.current())
      const promoted = clientOf(others, {})
      await promoted.connect()
      seen.resolve()
      await expect(begun).rejects.toThrow(DatabaseUnavailable)
      await until("none is left at the primary", async () => (await atPrimary()) === 0)
      expect(errors).toContainEqual(expect.stringMatching(/another primary was found/))
      const port = Number(new URL(standby.url).port)
      const { rows } = await sql<{ port: number }>`select inet_server_port() as port`.execute(database.db)
      expect(rows).toEqual([{ port }])
      await until("it listens there", () => database.isListening())
      await promoted.end()
    } finally {
      seen.resolve()
      await database.close()
    }
  })

  it("of the primary that goes on is refused by the promoted one, and used when it was set up again", async () => {
    // What the promoted one never had, more than it writes here.
    await on(primary.url, "create table lost ()")
    await on(primary.url, "select pg_switch_wal()")
    let other = await startPostgres({ durable: true, replicaOf: primary })
    const url = other.url
    const database = await openPostgres(standby.url, onError)
    const replica = openReplica({ url, maxLagMs: MAX_LAG_MS }, database.db, log)
    try {
      const earlier = /it is on timeline 1, and the primary on 2: it follows an earlier primary/
      await until("it is left out", () => earlier.test(replica.trouble() ?? ""))
      const fault = () => replicaFault({ url, maxLagMs: MAX_LAG_MS }, onStandby)
      expect(await fault()).toMatch(earlier)
      expect(await replicaFault({ url, maxLagMs: MAX_LAG_MS }, text => on(primary.url, text))).toBeUndefined()
      await other.stop()
      other = await startPostgres({ durable: true, replicaOf: standby, port: Number(new URL(url).port) })
      await until("it is used", () => replica.trouble() === undefined)
      expect(await fault()).toBeUndefined()
      expect(await replicaFault({ url, maxLagMs: MAX_LAG_MS }, text => on(primary.url, text))).toMatch(
        /a primary that was promoted later/,
      )
    } finally {
      await replica.close()
      await database.close()
      await other.stop()
    }
  })
})
