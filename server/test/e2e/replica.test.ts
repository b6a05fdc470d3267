/**
 * Lists and public reads from a streaming replica, through two API processes: nobody reads less than was committed before he asked,
 * whatever the replica does, and it is used again by itself.
 */
import { queryObjects } from "node:v8"
import { sql } from "kysely"
import { pino } from "pino"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { reading } from "../../src/context.ts"
import { openPostgres } from "../../src/db/open.ts"
import { openReplica, type Replica, replicaFault } from "../../src/db/replica.ts"
import { registry } from "../../src/metrics.ts"
import { troublesNow } from "../../src/troubles.ts"
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
  const onStandby = async (statement: string) => {
    const { default: pg } = await import("pg")
    const client = new pg.Client({ connectionString: standby.url })
    await client.connect()
    return (await client.query(statement).finally(() => client.end())).rows
  }
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
    expect((await troublesNow(two.ctx)).alarms).toContainEqual(expect.stringMatching(/^replica: left out/))
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
    expect(await fault("postgres://sluice@127.0.0.1:1/postgres")).toMatch(/can't be asked/)
    // Of a primary that was promoted with less than this replica has: it is behind what the replica had replayed before.
    let asked = 0
    const promoted = async (text: string) =>
      (await query(text)).map(row => (asked++ === 0 ? row : { ...row, position: 1n }))
    expect(await replicaFault({ url: standby.url, maxLagMs: MAX_LAG_MS }, promoted)).toMatch(
      /follows an earlier primary/,
    )
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
  })
})
