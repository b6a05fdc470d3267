// A database that an older version wrote: every row is there, the constraints hold, and the service continues with it. The
// oldest is of the last program before the baseline; each release adds a dump (`make-dump.test.ts`).
import { sql } from "kysely"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { onPostgres, openOlderDatabase, openTestDatabase, type RunSql } from "../../../test/database.ts"
import { type Line, migrationsBeforeBaseline, readDump } from "../../../test/dumps.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { checkConsistency } from "../../ledger/reconciliation/check-consistency.ts"
import { settleDue } from "../../ledger/settlement/settle.ts"
import { advanceEscrows } from "../../products/escrow/advance-escrows.ts"
import { advanceSubscriptions } from "../../products/subscriptions/advance-subscriptions.ts"
import type { Address, Hash } from "../chain/hex.ts"
import { inTransaction } from "../context.ts"
import { describeSchema } from "./describe-schema.ts"
import { type Engine, migrate, readMigrations } from "./migrate.ts"

/** What a life of the service at migration 0092 wrote, the last before the baseline. */
const dump = readDump("0092")
const older = migrationsBeforeBaseline()
const COMMENTS = `select pg_describe_object(classoid, objoid, objsubid) as object, description from pg_description
  where objoid >= 16384 and objoid not in (select oid from pg_class where relnamespace <> 'public'::regnamespace)
    and classoid in ('pg_class'::regclass, 'pg_type'::regclass) order by 1`
/** When the first of them was applied. */
const BEGAN = new Date("2026-01-02T03:04:05Z")

let service: TestService
/** The address of the database on Postgres. */
let url = ""
const said: string[] = []
const refusals = { older: "", changed: "" }
beforeAll(async () => {
  const fill = async (run: RunSql, at = "") => {
    url = at
    refusals.older = await refusalOf(run, "delete from migrations where name = (select max(name) from migrations)")
    refusals.changed = await refusalOf(
      run,
      `alter table payments drop constraint payments_status_check;
        create or replace function keep_actions() returns trigger language plpgsql as 'begin return new; end'`,
    )
    await run(`update migrations set applied_at = '${BEGAN.toISOString()}' where name like '0001%'`)
    await dump.fill(run)
  }
  const database = await openOlderDatabase(older, fill, sentence => void said.push(sentence))
  service = await startService({ database })
  // The clock goes on where that life ended: nothing has expired.
  const ended = Math.max(...dump.rowsOf("payments").map(({ updated_at }) => Date.parse(String(updated_at))))
  service.advance(ended + 60_000 - service.ctx.now().getTime())
})
afterAll(() => service.stop())

/** Why a database that something has changed is not migrated; the change is undone. */
async function refusalOf(run: RunSql, change: string): Promise<string> {
  const session = {
    exec: async (text: string) => void (await run(text)),
    query: async (text: string, values: unknown[] = []) =>
      await run(values.reduce<string>((text, value, i) => text.replaceAll(`$${i + 1}`, `'${value}'`), text)),
  }
  await run("begin")
  await run(change)
  const refused = await migrate({ transaction: work => work(session) }).catch((error: Error) => error.message)
  await run("rollback")
  return refused ?? ""
}

async function connected(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return client
}

const db = () => service.ctx.db
const query = async (text: string) => (await sql.raw<Line>(text).execute(db())).rows

/** Pays an existing paywall and session, and makes one of each: the books agree before and after. */
async function goOn(service: TestService): Promise<void> {
  const { db } = service.ctx
  const as = { as: "shop" }
  await db.updateTable("persons").set({ iss: service.issuer.issuer }).execute()
  expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  // A paywall and a session of before are paid now.
  for (const kind of ["pw_", "cs_"]) {
    const open = await sql<{ id: bigint; address: Address; resource_id: string }>`select d.* from deposits d
      where starts_with(resource_id, ${kind})
        and (${kind} = 'pw_' or not exists (select from transfers t where t.deposit_id = d.id))
        and d.merchant_id = (select merchant_id from members m join persons p on p.id = m.person_id where p.sub = 'shop')
        and not exists (select from checkout_sessions s where s.id = resource_id and s.status <> 'pending')
      order by id desc limit 1`.execute(db)
    const [deposit] = open.rows
    if (!deposit) throw new Error(`nothing of ${kind} is open`)
    const now = service.ctx.now()
    const tx_hash = `0x${kind === "pw_" ? "e1".repeat(32) : "e2".repeat(32)}` as Hash
    const { token } = await db.selectFrom("payments").select("token").executeTakeFirstOrThrow()
    await db
      .insertInto("transfers")
      .values({
        chain_id: paperNetwork.chainId,
        tx_hash,
        token,
        to_address: deposit.address,
        k: 0,
        deposit_id: deposit.id,
        from_address: `0x${"b1".repeat(20)}` as Address,
        value: 5_000_000n,
        block_number: 99n,
        block_hash: tx_hash,
        log_index: 0,
        block_time: now,
        state: "final" as const,
        run_at: now,
        created_at: now,
      })
      .execute()
    const network = { ...paperNetwork, token: { ...paperNetwork.token, address: token } }
    // Money that nobody submitted waits ten minutes for the hash.
    service.advance(11 * 60_000)
    const failures: unknown[] = []
    const log = Object.assign(Object.create(service.ctx.log), { error: (failure: unknown) => failures.push(failure) })
    await settleDue({ ...service.ctx, log, chain: { networks: [network] } }, network)
    expect(failures).toEqual([])
    const paid = db.selectFrom("payments").select(["status", "merchant_id"]).where("tx_hash", "=", tx_hash)
    expect(await paid.execute()).toMatchObject([{ status: "granted" }])
  }
  const made = await service.call("POST", "/api/console/paywalls", { name: "New", price: 5 }, as)
  expect(made.status).toBe(201)
  const session = await service.call("POST", "/api/console/checkouts", { amount: 5 }, as)
  expect(session.status).toBe(201)
  for (const { id } of [made.body, session.body])
    expect(await db.selectFrom("resources").select("id").where("id", "=", id).execute()).toHaveLength(1)
  expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
}

describe("a database of before the baseline", () => {
  it("has the baseline, its comments and its age in place of the migrations that made it", async () => {
    expect(said[0]).toBe(
      `The schema matches 0001_baseline, which replaces the ${older.length} migrations that made it.`,
    )
    const known = readMigrations().map(({ name, checksum }) => ({ name, checksum }))
    expect(await query("select name, checksum from migrations order by name")).toEqual(known)
    expect(await query("select applied_at from migrations where name = '0001_baseline'")).toEqual([
      { applied_at: BEGAN },
    ])
    const fresh = await openTestDatabase()
    const queryFresh = async (text: string) => (await sql.raw<Line>(text).execute(fresh.db)).rows
    const [expected, commented] = await Promise.all([
      describeSchema(queryFresh, { comments: false }),
      queryFresh(COMMENTS),
    ])
    await fresh.close()
    expect(expected.size).toBeGreaterThan(100)
    expect(await describeSchema(query, { comments: false })).toEqual(expected)
    expect(commented.length).toBeGreaterThan(200)
    expect(await query(COMMENTS)).toEqual(commented)
  })

  /** Columns that a later migration has moved to another table. */
  const moved: Record<string, string[]> = { merchants: ["iss", "sub"] }

  it("has the subject of each merchant as its owner", async () => {
    const owners = await db()
      .selectFrom("members")
      .innerJoin("persons", "persons.id", "members.person_id")
      .select(["merchant_id as id", "iss", "sub", "role", "was_member"])
      .orderBy("merchant_id")
      .execute()
    const before = dump
      .rowsOf("merchants")
      .map(({ id, iss, sub }) => ({ id, iss, sub, role: "owner", was_member: true }))
    expect(owners).toEqual(before.sort((a, b) => (String(a.id) < String(b.id) ? -1 : 1)))
    expect(owners.length).toBeGreaterThan(1)
  })

  it("has every row, as it was", async () => {
    for (const table of dump.tables) {
      const { rows } = await sql<{ lost: Line | null; extra: number }>`
        with older as (select value - ${`{${moved[table] ?? ""}}`}::text[] as row
            from jsonb_array_elements(${dump.textOf(table)}::jsonb)),
          now as (select to_jsonb(t) as row from ${sql.table(table)} t)
        select (select jsonb_agg(older.row) from older where not exists (select from now where now.row @> older.row)) as lost,
          (select count(*)::int from now) - (select count(*)::int from older) as extra`.execute(db())
      expect(rows, table).toEqual([{ lost: null, extra: 0 }])
    }
  })

  it.each([
    ["a payment for nothing that is for sale", "update payments set resource_id = 'pw_none'", /payments_resource/],
    ["a payment of another merchant", "update payments set merchant_id = $other", /payments_resource/],
    ["a payment on another network", "update payments set chain_id = 1", /payments_resource/],
    ["an address for nothing", "update deposits set resource_id = 'pw_none' where id = 1", /deposits_resource/],
    ["an address of another merchant", "update deposits set merchant_id = $other", /deposits_resource/],
    ["a submission for nothing", "update submissions set resource_id = 'cs_none'", /submissions_resource/],
    ["a submission by nobody", "update submissions set address = null where by_sender", /submissions_sender/],
    [
      "a paywall without a resource",
      "update paywalls set id = 'pw_none' where id = (select max(id) from paywalls)",
      /paywalls_resource|_fkey/,
    ],
    ["a paywall of another merchant", "update paywalls set merchant_id = $other", /paywalls_resource/],
    [
      "a session that is called a paywall",
      'insert into checkout_sessions select (jsonb_populate_record(s, \'{"id": "pw_x"}\')).* from checkout_sessions s limit 1',
      /checkout_sessions_prefix/,
    ],
    [
      "a second address of a session",
      'insert into deposits overriding system value select (jsonb_populate_record(d, \'{"id": 4711, "older_factory": false, "address": "0x1111111111111111111111111111111111111111"}\')).* from deposits d where starts_with(resource_id, \'cs_\') limit 1',
      /deposits_of_session/,
    ],
    [
      "a second payment of a session",
      "insert into payments select (jsonb_populate_record(p, '{\"id\": \"pay_x\"}')).* from payments p where starts_with(resource_id, 'cs_') and status = 'granted' and not beside limit 1",
      /payments_once_a_session/,
    ],
    [
      "a hash twice at a session",
      `insert into submissions (resource_id, chain_id, tx_hash, by_sender, status, message, submitted_at, updated_at)
        select id, chain_id, '0x${"1".repeat(64)}', false, 'verifying', '', now(), now()
        from (select * from checkout_sessions limit 1) s, generate_series(1, 2)`,
      /submissions_of_anybody/,
    ],
    [
      "a hash twice of one sender",
      "insert into submissions overriding system value select (jsonb_populate_record(s, '{\"id\": 4711}')).* from submissions s where by_sender limit 1",
      /submissions_of_sender/,
    ],
    [
      "the end of a paywall with payments",
      "delete from paywall_versions; delete from grants; delete from access; delete from paywalls",
      /_resource/,
    ],
    ["the end of a session with an address", "delete from checkout_sessions", /_resource/],
    [
      "a release in the log of manual actions",
      "insert into operator_actions (at, action, by_user, chain_id, before, after) values (now(), 'release', 'ops', 1, '{}', '{}')",
      /operator_actions_action_check/,
    ],
    ["an attempt that is forgotten", "delete from transaction_attempts", /transaction attempts are never deleted/],
    [
      "an attempt with other bytes",
      "update transaction_attempts set raw = '0x00'",
      /transaction attempt \d+ is signed/,
    ],
    ["a payout of another amount", "update payouts set amount = amount + 1", /what payout .* pays can not change/],
    [
      "a payout that gives its nonce up",
      "update payouts set nonce = null, wallet = null where nonce is not null",
      /nonce/,
    ],
    ["the end of a resource", "delete from resources", /_resource/],
  ])("the database refuses %s", async (_what, statement, constraint) => {
    const { merchant_id: id } = await db()
      .selectFrom("persons")
      .innerJoin("members", "members.person_id", "persons.id")
      .select("merchant_id")
      .where("sub", "=", "other")
      .executeTakeFirstOrThrow()
    const work = inTransaction(service.ctx, async ctx => {
      for (const each of statement.split("; ")) await sql.raw(each.replace("$other", `'${id}'`)).execute(ctx.db)
    })
    await expect(work).rejects.toThrow(constraint)
  })

  it("goes on: the service lists, settles and sells, and the books agree", async () => {
    await goOn(service)
    // Escrows and subscriptions are computed from their rows again.
    const failures: unknown[] = []
    const log = Object.assign(Object.create(service.ctx.log), { error: (failure: unknown) => failures.push(failure) })
    const ctx = { ...service.ctx, log }
    for (const table of ["escrows", "subscriptions"] as const)
      await db().updateTable(table).set({ run_at: ctx.now() }).execute()
    const sessions = () =>
      db().selectFrom("checkout_sessions").select(["id", "status", "amount"]).orderBy("id").execute()
    const before = await sessions()
    await advanceEscrows(ctx)
    await advanceSubscriptions(ctx)
    expect(failures).toEqual([])
    expect(await sessions()).toEqual(expect.arrayContaining(before))
  })
})

describe("a database of before the baseline is refused in one sentence that names --reset", () => {
  it("if it has not all of their migrations", () => {
    expect(refusals.older).toMatch(
      /^The database has the schema of a version before the first release\. Wipe a sandbox with --reset; in any other installation, first run script\/migrate of commit \w+\.$/,
    )
  })

  it("if something else changed its schema", () => {
    expect(refusals.changed).toBe(
      "The schema of the database differs from the one that its migrations made, in table payments, function keep_actions(). Wipe a sandbox with --reset; in any other installation, undo the change.",
    )
  })
})

describe("a migration", () => {
  it.runIf(onPostgres)("is not waited for while a table is in use, as requests would wait behind", async () => {
    const said: string[] = []
    const [user, client] = await Promise.all([connected(), connected()])
    await user.query("begin; select from checkout_sessions")
    const text = "lock table checkout_sessions in access exclusive mode"
    const transaction: Engine["transaction"] = async run => {
      await client.query("begin")
      const exec = async (text: string) => void (await client.query(text))
      const query = async (text: string, values?: unknown[]) => (await client.query(text, values)).rows
      return await run({ exec, query }).finally(() => client.query(said.length < 2 ? "rollback" : "commit"))
    }
    const report = (sentence: string) => {
      said.push(sentence)
      if (sentence.startsWith("A table is in use")) void user.end()
    }
    await migrate({ transaction }, report, [...readMigrations(), { name: "9999_test.sql", text, checksum: "x" }])
    await client.end()
    expect(said).toEqual([
      "Applying the migration 9999_test.sql (1 of 1).",
      "A table is in use by another process. Nothing was applied; trying again in 1 s.",
      "Applying the migration 9999_test.sql (1 of 1).",
      expect.stringMatching(/^Applied the migration 9999_test.sql in \d+\.\d s\.$/),
    ])
  })
})
