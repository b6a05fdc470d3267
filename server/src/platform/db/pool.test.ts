// A Postgres that is slow, paused, killed and started again, and what callers get in the meantime.
import { createServer, type Socket, connect as tcpConnect } from "node:net"
import { setImmediate as nextTurn } from "node:timers/promises"
import { Kysely, PostgresDialect, sql } from "kysely"
import pg from "pg"
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../../../test/postgres.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { withActor } from "../actor.ts"
import type { Hash } from "../chain/hex.ts"
import { inTransaction } from "../context.ts"
import { errorTable } from "../errors.ts"
import { acting } from "./acting.ts"
import { connectClient } from "./hosts.ts"
import { type Db, type OpenDatabase, openPostgres } from "./open.ts"
import { bounded, DatabaseUnavailable, openPool, requestDeadlines } from "./pool.ts"
import type { Database } from "./schema.ts"
import { sqlRows } from "./sql-array.ts"

let postgres: TestPostgres
let database: OpenDatabase
let service: TestService

describe.runIf(postgresBinaries())("a Postgres in trouble", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
    const deadlines = { connectMs: 4_000, statementMs: 2_000, lockMs: 500 }
    database = await openPostgres(postgres.url, () => {}, undefined, deadlines)
    service = await startService({ database })
  })
  afterAll(async () => {
    await service?.stop()
    await postgres?.stop()
  })

  const add = (db: Db, key: string) => db.insertInto("installation").values({ key, value: "x" }).execute()
  const keys = async () => (await database.db.selectFrom("installation").select("key").execute()).map(row => row.key)
  const settings = (headers = {}) =>
    service.call("PUT", "/api/console/settings", { name: "Shop" }, { as: "shop", headers })
  const expectUnavailable = async (answer: Awaited<ReturnType<typeof settings>>) => {
    const { status, message } = errorTable.DATABASE_UNAVAILABLE
    expect([answer.status, answer.body.error, answer.body.message]).toEqual([status, "DATABASE_UNAVAILABLE", message])
    expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0)
  }

  it("keeps a statement that says its name prepared on its connection, and no other", async () => {
    await until("connections are known to be sessions", () => database.isListening())
    const prepared = await inTransaction(service.ctx, async ({ db }) => {
      for (const n of [1, 2]) await sql`/* named: probe */ select ${n}::int as n`.execute(db)
      for (const n of [1, 2]) await sql`select /* named: probe_too */ ${n}::int as n`.execute(db)
      await sql`select ${1}::int as unnamed`.execute(db)
      const last = sql`/* named: probe_last */`
      for (const key of ["a", "b"])
        await db.updateTable("installation").set({ value: "y" }).where("key", "=", key).modifyEnd(last).execute()
      const { rows } = await sql<{ name: string }>`select name from pg_prepared_statements`.execute(db)
      return rows.map(({ name }) => name)
    })
    expect(prepared.filter(name => name.startsWith("probe")).sort()).toEqual(["probe", "probe_last", "probe_too"])
    expect(prepared).not.toContain("unnamed")
  })

  it("plans a named statement once for lists of ids as rows: it expects one of them, as there mostly is", async () => {
    await until("connections are known to be sessions", () => database.isListening())
    const { rows } = await inTransaction(service.ctx, async ({ db }) => {
      for (let n = 0n; n < 9n; n++)
        await sql`/* named: by_rows */ select id from transfers t where t.id in (${sqlRows("bigint", [n])})
          and exists (select from claims c join payments p on p.id = c.payment_id where c.transfer_id = t.id)`.execute(
          db,
        )
      return await sql<{ plans: bigint }>`
        select generic_plans as plans from pg_prepared_statements where name = 'by_rows'`.execute(db)
    })
    // The first five are planned with their values.
    expect(rows).toEqual([{ plans: 4n }])
  })

  it("keeps the usual statements of the list of transactions prepared: each merchant's pages are whole and in order", async () => {
    const shops = ["one", "two", "three"]
    const ids: Record<string, string[]> = {}
    for (const shop of shops) {
      const rows = await addPayments(await service.merchant(shop), shop, 120)
      ids[shop] = rows.map(({ id }) => id)
    }
    await until("connections are known to be sessions", () => database.isListening())
    // From the sixth execution on Postgres keeps a generic plan, without the parameters' values.
    for (let nth = 0; nth < 9; nth++)
      for (const as of shops) {
        const { body } = await service.call("GET", "/api/console/transactions", undefined, { as })
        expect(body.data.map(({ id }: { id: string }) => id)).toEqual(ids[as]?.slice(0, 100))
        expect(body.total).toBe(120)
        const rest = await service.call("GET", `/api/console/transactions?after=${body.next}`, undefined, { as })
        expect(rest.body.data.map(({ id }: { id: string }) => id)).toEqual(ids[as]?.slice(100))
        const one = await service.call("GET", `/api/console/transactions?q=0x${"0".repeat(61)}007`, undefined, { as })
        expect(one.body.data.map(({ id }: { id: string }) => id)).toEqual(ids[as]?.slice(7, 8))
        const granted = await service.call("GET", "/api/console/transactions?status=granted", undefined, { as })
        expect(granted.body.data).toEqual(body.data)
        const { body: odd } = await service.call("GET", "/api/console/payments", undefined, { as })
        expect(odd.data.map(({ id }: { id: string }) => id)).toEqual(ids[as]?.filter((_, n) => n % 10 === 0))
      }
    // Of all connections: a list and its count may have used two.
    const all = Array.from({ length: 10 }, () =>
      inTransaction(service.ctx, async ({ db }) => {
        const { rows } = await sql<{ name: string }>`select name from pg_prepared_statements`.execute(db)
        return rows.map(({ name }) => name)
      }),
    )
    const names = (await Promise.all(all)).flat()
    const lists = ["transactions_counted", "transactions_newest", "transactions_next", "transactions_of_hash_newest"]
    expect(names).toEqual(expect.arrayContaining([...lists, "exceptions_newest", "granted_transactions_newest"]))
  })

  /** Payments of nothing, newest first, without the triggers and the checks of what they refer to. */
  async function addPayments(merchantId: string, shop: string, count: number): Promise<{ id: string }[]> {
    return await database.db.transaction().execute(async tx => {
      await sql`set local session_replication_role = replica`.execute(tx)
      const { rows } = await sql<{ id: string }>`
        insert into payments (id, merchant_id, resource_id, chain_id, payer, amount, token, tx_hash, status, exception, created_at, updated_at)
        select 'pay_' || lpad(${shop} || n, 24, 'x'), ${merchantId}, 'pw_x', ${paperNetwork.chainId}, '0x' || lpad('a', 40, '0'), 1,
          ${paperNetwork.token.address}, '0x' || lpad(to_hex(n), 64, '0'), 'granted', case n % 10 when 0 then 'overpaid' end,
          now() - make_interval(secs => n), now() from generate_series(0, ${count - 1}) n returning id`.execute(tx)
      return rows
    })
  }

  it("notifies itself with one text, of which statistics of statements keep one entry", async () => {
    const url = `${postgres.url}?application_name=beats`
    const listening = await openPostgres(url, () => {})
    try {
      await listening.listen({ notified: () => {}, missed: () => {} })
      await until("a beat arrived", () => listening.isListening())
      const { rows } = await sql<{ query: string }>`
        select query from pg_stat_activity where application_name = 'beats' and query ~ 'notify'`.execute(database.db)
      expect(rows).toEqual([{ query: "select pg_notify($1, $2)" }])
    } finally {
      await listening.close()
    }
  })

  it("ends a statement and a wait for a lock that take too long, and their transactions leave nothing", async () => {
    const slow = inTransaction(service.ctx, async ctx => {
      await add(ctx.db, "slow")
      await sql`select pg_sleep(60)`.execute(ctx.db)
    })
    await expect(slow).rejects.toThrow(DatabaseUnavailable)
    await inTransaction(service.ctx, async ctx => {
      await sql`lock table installation`.execute(ctx.db)
      const waiting = inTransaction(service.ctx, ({ db }) => add(db, "waiting"))
      await expect(waiting).rejects.toThrow("lock timeout")
    })
    expect(await keys()).toEqual([])
    // A statement's own error stays what it is, and the loops in the background have more time.
    await expect(sql`select 1/0`.execute(database.db)).rejects.toMatchObject({ code: "22012" })
    const shown = await sql<{ statement_timeout: string }>`show statement_timeout`.execute(database.background)
    expect(shown.rows).toEqual([{ statement_timeout: "10min" }])
  })

  it("starts no parallel workers for a request, and does for the loops in the background", async () => {
    const plan = async (db: typeof database.db) => {
      const { rows } = await db.transaction().execute(async db => {
        await sql`set local min_parallel_table_scan_size = 0`.execute(db)
        await sql`set local parallel_setup_cost = 0`.execute(db)
        await sql`set local parallel_tuple_cost = 0`.execute(db)
        return await sql`explain (costs off) select count(*) from pg_class`.execute(db)
      })
      return JSON.stringify(rows)
    }
    expect(await plan(database.db)).not.toContain("Gather")
    expect(await plan(database.background)).toContain("Gather")
  })

  it("rolls back a transaction that failed when it had just begun, so that its connection serves the next", async () => {
    const pool = new pg.Pool({ connectionString: postgres.url, max: 1 })
    const db = new Kysely({ dialect: acting(new PostgresDialect({ pool }), "begin; select 1/0") })
    const actor = { kind: "operator", id: "ops", route: "a test" } as const
    const begun = withActor(actor, () => db.transaction().execute(async () => {}))
    await expect(begun).rejects.toThrow("division by zero")
    expect((await sql`select 1 as one`.execute(db)).rows).toEqual([{ one: 1 }])
    await db.destroy()
  })

  /** Opens a database with one connection, which is known to be a session. */
  const openOne = () => {
    const pool = openPool(postgres.url, requestDeadlines, () => {}, 1)
    const dialect = new PostgresDialect({ pool: bounded(pool, requestDeadlines, () => true) })
    return { pool, db: new Kysely<Database>({ dialect: acting(dialect, "begin") }) }
  }

  it("begins a transaction with its first statement, and none where there is no statement", async () => {
    const { pool, db } = openOne()
    const client = await pool.connect()
    client.release()
    const sent = vi.spyOn(client, "query")
    const callsOf = async (work: (db: Db) => Promise<unknown>) => {
      sent.mockClear()
      await db.transaction().execute(work)
      return sent.mock.calls.length
    }
    expect(await callsOf(async () => {})).toBe(0)
    const one = sql<{ one: number }>`select ${1}::int as one`
    expect(await callsOf(async db => expect((await one.execute(db)).rows).toEqual([{ one: 1 }]))).toBe(2)
    // The actor's statement is sent in the same message.
    const actor = { kind: "operator", id: "ops", route: "a test" } as const
    const acted = sql<{ actor: string }>`select current_setting('sluice.actor') as actor, ${1}::int`
    const asOps = (db: Db) => acted.execute(db).then(({ rows }) => expect(atob(rows[0]?.actor ?? "")).toContain("ops"))
    expect(await withActor(actor, () => callsOf(asOps))).toBe(2)
    // A text with several statements has no values, and is sent separately.
    expect(await callsOf(db => sql`lock table installation; select 1`.execute(db))).toBe(3)
    await db.destroy()
  })

  it("undoes a transaction whose first statement failed, and prepares that under its name once it can be", async () => {
    const { db } = openOne()
    const insert = (db: Db, key: string) =>
      sql`/* named: insert_first */ insert into installation (key, value) values (${key}, ${key})`.execute(db)
    const first = (key: string, fail = false) =>
      db.transaction().execute(async db => {
        await insert(db, key)
        if (fail) throw new Error("given up")
      })
    try {
      await sql`alter table installation rename to renamed`.execute(db)
      await expect(first("a")).rejects.toMatchObject({ code: "42P01" })
      await sql`alter table renamed rename to installation`.execute(db)
      await expect(first("a", true)).rejects.toThrow("given up")
      await first("a")
      await expect(first("a")).rejects.toMatchObject({ code: "23505" })
      await first("b")
      expect((await keys()).sort()).toEqual(["a", "b"])
      const { rows } = await sql<{ name: string }>`select name from pg_prepared_statements where name <> ''`.execute(db)
      expect(rows).toEqual([{ name: "insert_first" }])
    } finally {
      await sql`delete from installation`.execute(db)
      await db.destroy()
    }
  })

  it("prepares a name that came with a beginning which was refused", async () => {
    const { pool, db } = openOne()
    const named = (db: Db) => sql<{ one: number }>`/* named: begun_late */ select ${1}::int as one`.execute(db)
    // PostgreSQL refuses what begins a transaction within one that failed.
    const client = await pool.connect()
    await client.query("begin")
    await expect(client.query("select 1 / 0")).rejects.toThrow("division by zero")
    client.release()
    await expect(db.transaction().execute(named)).rejects.toMatchObject({ code: "25P02" })
    expect((await named(db)).rows).toEqual([{ one: 1 }])
    await db.destroy()
  })

  it("runs no statement of a transaction that has not begun: not beside its first one, and not after that has failed", async () => {
    const { db } = openOne()
    const insert = (db: Db, key: string) => sql`insert into installation (key, value) values (${key}, 'x')`.execute(db)
    // The client itself refuses a name that another text has, so that nothing is sent.
    const refused = (db: Db) => sql`/* named: taken */ select ${1}::int as one`.execute(db)
    const wrong = (db: Db) => sql`select ${1}::int / 0`.execute(db)
    try {
      await db.transaction().execute(db => sql`/* named: taken */ select ${2}::int as two`.execute(db))
      for (const fails of [refused, wrong]) {
        const beside = db.transaction().execute(db => Promise.all([fails(db), insert(db, "beside")]))
        await expect(beside).rejects.toThrow()
        const after = db.transaction().execute(async db => {
          await fails(db).catch(() => {})
          await insert(db, "after").catch(() => {})
        })
        await expect(after).rejects.toThrow("rolled back instead of committed")
        expect(await keys()).toEqual([])
      }
      await db.transaction().execute(db => Promise.all([insert(db, "one"), insert(db, "two")]))
      expect((await keys()).sort()).toEqual(["one", "two"])
    } finally {
      await sql`delete from installation`.execute(db)
      await db.destroy()
    }
  })

  it("runs nothing that a failed transaction has still queued, and keeps no connection whose rollback failed", async () => {
    const { pool, db } = openOne()
    const insert = (db: Db, key: string) => sql`insert into installation (key, value) values (${key}, 'x')`.execute(db)
    try {
      const wrong = (db: Db) => sql`select ${1}::int / 0`.execute(db)
      const queued = db.transaction().execute(async db => {
        await sql`select ${1}::int`.execute(db)
        await Promise.all([wrong(db), ...["a", "b", "c", "d"].map(key => insert(db, key))])
      })
      await expect(queued).rejects.toThrow("division by zero")
      await sql`select 1`.execute(db)
      expect(await keys()).toEqual([])
      // As if a cancel request arrived late.
      const client = await pool.connect()
      const { query } = client
      const cancelled = Object.assign(new pg.DatabaseError("canceling statement", 0, "error"), { code: "57014" })
      vi.spyOn(client, "query").mockImplementation(((config: pg.QueryConfig, answered: (error: Error) => void) =>
        config.text === "rollback"
          ? answered(cancelled)
          : Reflect.apply(query, client, [config, answered])) as typeof client.query)
      client.release()
      await expect(db.transaction().execute(wrong)).rejects.toThrow()
      expect((await sql<{ one: number }>`select 1 as one`.execute(db)).rows).toEqual([{ one: 1 }])
    } finally {
      await db.destroy()
    }
  })

  describe("a deferred statement", () => {
    let db: Db
    let sent: { mock: { calls: unknown[] }; mockClear(): unknown }
    const insert = (db: Db, key: string) => sql`insert into installation (key, value) values (${key}, 'x')`.execute(db)
    const later = (db: Db, key: string, value: unknown = "later") =>
      sql`/* named: later, deferred */ insert into installation (key, value) values (${key}, ${value})`.execute(db)
    const callsOf = async (work: (db: Db) => Promise<unknown>) => {
      sent.mockClear()
      await db.transaction().execute(work)
      return sent.mock.calls.length
    }
    beforeAll(async () => {
      const opened = openOne()
      db = opened.db
      const client = await opened.pool.connect()
      client.release()
      sent = vi.spyOn(client, "query")
    })
    afterEach(async () => void (await sql`delete from installation`.execute(db)))
    afterAll(() => db.destroy())

    it("is sent with the commit, alone, or before the next statement, which sees what it wrote", async () => {
      expect(await callsOf(db => later(db, "a"))).toBe(1)
      expect(await callsOf(db => insert(db, "b").then(() => later(db, "c")))).toBe(2)
      expect(await callsOf(db => later(db, "d").then(() => later(db, "e")))).toBe(2)
      const read = async (db: Db) => {
        await later(db, "f")
        return await sql<{ key: string }>`select key from installation where key = ${"f"}`.execute(db)
      }
      expect(await callsOf(db => read(db).then(({ rows }) => expect(rows).toEqual([{ key: "f" }])))).toBe(3)
      const actor = { kind: "operator", id: "ops", route: "a test" } as const
      const acted = (db: Db) =>
        sql`/* named: acted, deferred */ insert into installation (key, value) values (${"g"}, current_setting('sluice.actor'))`.execute(
          db,
        )
      expect(await withActor(actor, () => callsOf(acted))).toBe(1)
      expect((await keys()).sort()).toEqual(["a", "b", "c", "d", "e", "f", "g"])
      // Outside a transaction there is nothing to wait for.
      await later(db, "h")
      expect(await keys()).toContain("h")
    })

    it("undoes its transaction where it fails, and is not sent where that fails", async () => {
      const circular: Record<string, unknown> = {}
      circular.itself = circular
      await later(db, "taken")
      const fail = (words: string) => Promise.reject(new Error(words))
      const late = () => nextTurn().then(() => fail("beside"))
      const failing: [string, (db: Db) => Promise<unknown>][] = [
        ["duplicate key", db => insert(db, "a").then(() => later(db, "taken"))],
        ["duplicate key", db => later(db, "taken").then(() => insert(db, "a"))],
        ["duplicate key", db => later(db, "taken")],
        // A deferred statement is not sent after the rollback, even if the rollback comes while an earlier one is in
        // flight.
        [
          "beside",
          db =>
            insert(db, "a")
              .then(() => later(db, "b"))
              .then(() => Promise.all([insert(db, "c"), late()])),
        ],
        // Its values can't be sent: the commit must not be either.
        ["circular", db => insert(db, "a").then(() => later(db, "b", circular))],
        ["given up", db => later(db, "a").then(() => fail("given up"))],
        ["division by zero", db => Promise.all([sql`select ${1}::int / 0`.execute(db), later(db, "a")])],
      ]
      for (const [words, work] of failing) {
        await expect(db.transaction().execute(work)).rejects.toThrow(words)
        // Runs after everything that was sent on the one connection.
        await sql`select 1`.execute(db)
        expect(await keys()).toEqual(["taken"])
      }
      const caught = db.transaction().execute(async db => {
        await sql`select ${1}::int / 0`.execute(db).catch(() => {})
        await later(db, "a").catch(() => {})
      })
      await expect(caught).rejects.toThrow("rolled back instead of committed")
      expect(await keys()).toEqual(["taken"])
    })
  })

  it("is found behind a host that lets clients in and then says nothing", async () => {
    const { port, host } = new URL(postgres.url)
    const sockets: Socket[] = []
    let unanswered = 0
    const silent = createServer(client => {
      const server = tcpConnect(Number(port), "127.0.0.1")
      sockets.push(client, server)
      for (const each of [client, server]) each.on("error", () => {})
      server.pipe(client)
      client.on("data", data => {
        if (data.includes("pg_is_in_recovery")) unanswered++
        else server.write(data)
      })
    })
    await new Promise<void>(resolve => silent.listen(0, "127.0.0.1", resolve))
    const { port: silentPort } = silent.address() as { port: number }
    const url = postgres.url.replace(host, `127.0.0.1:${silentPort},${host}`)
    const client = await connectClient(url, { connectionTimeoutMillis: 1_000 })
    expect((await client.query("show port")).rows).toEqual([{ port }])
    expect(unanswered).toBe(1)
    await client.end()
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => silent.close(resolve))
  })

  it("that is paused: each request ends with 503, /readyz reports it, and everything continues when Postgres does", async () => {
    expect((await settings()).status).toBe(200)
    const before = await database.db.selectFrom("merchants").selectAll().execute()
    postgres.pause()
    try {
      const asked = service.call("GET", "/readyz")
      for (const answer of await Promise.all([settings(), settings(), settings()])) await expectUnavailable(answer)
      const ready = await asked
      expect([ready.status, ready.body.message]).toEqual([503, "Not ready: the database does not answer."])
      expect((await service.call("GET", "/healthz")).status).toBe(200)
    } finally {
      postgres.resume()
    }
    await until("requests are served", async () => (await settings()).status === 200)
    expect(await database.db.selectFrom("merchants").selectAll().execute()).toHaveLength(before.length)
    await until("the database is no fault", async () => {
      const { body } = await service.call("GET", "/readyz")
      return !String(body.message).includes("database")
    })
  })

  it("that is killed in the middle of a transaction, refuses, and is started again", async () => {
    const cut = inTransaction(service.ctx, async ctx => {
      await add(ctx.db, "cut")
      await postgres.kill()
      // Also while no statement runs: a connection that breaks then must not end the process.
      await until("the connection is gone", async () => (await settings()).status === 503)
      await add(ctx.db, "cut too")
    })
    await expect(cut).rejects.toThrow(DatabaseUnavailable)
    await expectUnavailable(await settings({ "idempotency-key": "once" }))
    const refused = "Not ready: the database can't be reached."
    await until("/readyz says so", async () => (await service.call("GET", "/readyz")).body.message === refused)
    await postgres.start()
    await until("requests are served", async () => (await settings({ "idempotency-key": "once" })).status === 200)
    expect(await keys()).toEqual([])
  })

  it("some of whose tables a migration holds: processes stay ready", async () => {
    const connected = async () => {
      const client = new pg.Client({ connectionString: postgres.url })
      await client.connect()
      return client
    }
    const admin = await connected()
    const other = await connected()
    const now = service.ctx.now()
    const at = { block_number: 1n, block_hash: `0x${"1".repeat(64)}` as Hash, finalized_number: 0n }
    const cursor = { chain_id: paperNetwork.chainId, ...at, run_at: now, looked_at: now }
    await database.db.insertInto("cursors").values(cursor).execute()
    const readyz = async () => (await service.call("GET", "/readyz")).status
    await until("the process is ready", async () => (await readyz()) === 200)
    await admin.query("begin; lock table wallets, cursors")
    const waits = async () =>
      (await other.query("select from pg_stat_activity where wait_event_type = 'Lock'")).rows.length > 0
    await until("a question waits for the tables", async () => {
      let isOpen = true
      let waited = false
      const answer = readyz().finally(() => {
        isOpen = false
      })
      // A statement waits for half a second here, and the answer follows.
      while (isOpen) waited = (await waits()) || waited
      expect(await answer).toBe(200)
      return waited
    })
    expect(await readyz()).toBe(200)
    await admin.query("commit")
    await Promise.all([admin, other].map(client => client.end()))
  })
})
