// A database that an older version wrote: every row is migrated, the constraints hold, and the service continues with
// it.
import { sql } from "kysely"
import pg from "pg"
import { zeroHash } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { onPostgres, openOlderDatabase } from "../../../test/database.ts"
import { type Line, readDump } from "../../../test/dumps.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { checkConsistency } from "../../ledger/reconciliation/check-consistency.ts"
import { settleDue } from "../../ledger/settlement/settle.ts"
import { advanceEscrows } from "../../products/escrow/advance-escrows.ts"
import { advanceSubscriptions } from "../../products/subscriptions/advance-subscriptions.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "../chain/hex.ts"
import { inTransaction } from "../context.ts"
import type { OpenDatabase } from "./open.ts"

/**
 * What the service of migration 0028 wrote in a life of its own: payments in every state at paywalls and checkouts, submissions,
 * payouts, relays, a recovery, dormant addresses.
 */
const { tables, rowsOf, fill } = readDump("0028")

let service: TestService
beforeAll(async () => {
  service = await startService({ database: await openOlderDatabase("0029", fill) })
  // The clock goes on where that life ended: nothing has expired.
  const ended = Math.max(...rowsOf("payments").map(({ updated_at }) => Date.parse(String(updated_at))))
  service.advance(ended + 60_000 - service.ctx.now().getTime())
})
afterAll(() => service.stop())

const db = () => service.ctx.db
const text = (rows: readonly Line[]) => rows.map(row => JSON.stringify(row, Object.keys(row).sort())).sort()

const renamedTables: Record<string, string> = { intents: "payouts", attempts: "transaction_attempts" }
const renamedColumns: Record<string, Record<string, string>> = {
  attempts: { intent_id: "payout_id" },
  sweep_parts: { intent_id: "payout_id" },
  operator_actions: { intent_id: "payout_id" },
  reconciliations: { intent_position: "payout_position" },
  deposits: { hot: "watched", hot_until: "watched_until", cooled_at: "dormant_since" },
  payments: { tell_by: "notify_by" },
}
const renamedWords: Record<string, string> = {
  release: "retry",
  gas_soon: "gas_warning",
  untold: "rpc_unavailable",
}

/** Returns a row with the current names of its columns and values. */
function renamed(table: string, row: Line): Line {
  const word = (value: unknown) => renamedWords[String(value)] ?? value
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      renamedColumns[table]?.[name] ?? name,
      name === "alarms" ? (value as string[]).map(word) : name === "action" ? word(value) : value,
    ]),
  )
}

/** Returns the terms of an address from before addresses committed to them. */
function termsOf(depositId: unknown, sessionId: unknown): Line {
  const versions = rowsOf("paywall_versions").filter(row => row.deposit_id === depositId)
  const [last] = versions.sort((a, b) => Number(b.n) - Number(a.n))
  const set = last?.recipient_set_id ?? rowsOf("checkout_sessions").find(row => row.id === sessionId)?.recipient_set_id
  return {
    approver: ZERO_ADDRESS,
    older_factory: true,
    payees_hash: zeroHash,
    ...(set === undefined ? {} : { recipient_set_id: set }),
  }
}

/** Columns of later versions, with the values that their migrations give to existing rows. */
const added: Record<string, Line> = {
  cursors: { interval_ms: 60_000 },
  api_keys: { scopes: ["checkouts"] },
  attempts: { data_fee: 0 },
  payments: { agent: false, reopened: false },
  transfers: { applied: false },
  checkout_sessions: { agent: false, capture: "direct" },
  claims: { given_back: 0 },
  paywalls: { listed: false },
  products: { trial_days: 0 },
}

/** A row of the fixture as it must be now. */
function migrated(table: string, { paywall_id, session_id, ...older }: Line): Line {
  const { recipient_set_id: set, ...rest } = renamed(table, older)
  const gone = table === "payments" || table === "paywall_versions"
  const terms =
    table === "deposits" ? termsOf(older.id, session_id) : set === undefined || gone ? {} : { recipient_set_id: set }
  const row: Line = { ...rest, ...terms, ...added[table] }
  if (!["deposits", "submissions", "payments"].includes(table))
    return { ...row, ...(paywall_id === undefined ? {} : { paywall_id }) }
  const sender = table === "submissions" ? { by_sender: paywall_id !== undefined } : {}
  return { ...row, ...sender, resource_id: paywall_id ?? session_id }
}

/** Pays an existing paywall and session, and makes one of each: the books agree before and after. */
async function goOn(service: TestService): Promise<void> {
  const { db } = service.ctx
  const as = { as: "shop" }
  await db.updateTable("merchants").set({ iss: service.issuer.issuer }).execute()
  expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  // A paywall and a session of before are paid now.
  for (const kind of ["pw_", "cs_"]) {
    const open = await sql<{ id: bigint; address: Address; resource_id: string }>`select d.* from deposits d
      where starts_with(resource_id, ${kind})
        and (${kind} = 'pw_' or not exists (select from transfers t where t.deposit_id = d.id))
        and d.merchant_id = (select id from merchants where sub = 'shop')
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

it("the fixture has payments, addresses and submissions of both kinds in every state", () => {
  const kinds = (table: string, state: string) =>
    [...new Set(rowsOf(table).map(row => `${row.paywall_id ? "paywall" : "session"} ${row[state]}`))].sort()
  const states = ["granted", "open", "returned", "reversed"]
  expect(kinds("payments", "status")).toEqual(
    ["paywall", "session"].flatMap(kind => states.map(each => `${kind} ${each}`)),
  )
  expect(kinds("deposits", "hot")).toEqual(["paywall false", "paywall true", "session true"])
  expect(kinds("submissions", "status").length).toBeGreaterThan(5)
})

describe("after the migration", () => {
  it("every row is there, as it was", async () => {
    for (const table of tables) {
      const { rows } = await sql<{ row: Line }>`
        select json_strip_nulls(row_to_json(t)) as row from ${sql.table(renamedTables[table] ?? table)} t`.execute(db())
      expect(text(rows.map(({ row }) => row)), table).toEqual(text(rowsOf(table).map(row => migrated(table, row))))
    }
    const known = [...rowsOf("paywalls"), ...rowsOf("checkout_sessions")]
    const resources = await db().selectFrom("resources").selectAll().execute()
    expect(text(resources as unknown as Line[])).toEqual(
      text(known.map(({ id, merchant_id, chain_id }) => ({ id, merchant_id, chain_id }))),
    )
  })

  it("nothing is called by an old name", async () => {
    const { rows } = await sql<{ name: string }>`
      select relname as name from pg_class where relnamespace = 'public'::regnamespace
      union all select conname from pg_constraint where connamespace = 'public'::regnamespace
      union all select tgname from pg_trigger where not tgisinternal
      union all select proname || ' ' || prosrc from pg_proc where pronamespace = 'public'::regnamespace
      union all select table_name || '.' || column_name from information_schema.columns where table_schema = 'public'`.execute(
      db(),
    )
    expect(rows.length).toBeGreaterThan(300)
    const older = /intent|^attempts|\bfrom attempts|\bhot\b|_hot\b|hot_|_cold|cooled|tell_by|_to_tell/
    expect(rows.filter(({ name }) => older.test(name))).toEqual([])
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
      "insert into submissions overriding system value select (jsonb_populate_record(s, '{\"id\": 4711}')).* from submissions s where not by_sender limit 1",
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
    const { id } = await db().selectFrom("merchants").select("id").where("sub", "=", "other").executeTakeFirstOrThrow()
    const work = inTransaction(service.ctx, async ctx => {
      for (const each of statement.split("; ")) await sql.raw(each.replace("$other", `'${id}'`)).execute(ctx.db)
    })
    await expect(work).rejects.toThrow(constraint)
  })

  it("one transaction may be submitted by two senders to a paywall", async () => {
    const { rows } = await sql`select tx_hash from submissions where by_sender group by 1 having count(*) = 2`.execute(
      db(),
    )
    expect(rows).toHaveLength(1)
  })

  it("the service goes on: lists, settles, sells, and the books agree", async () => {
    const as = { as: "shop" }
    await db().updateTable("merchants").set({ iss: service.issuer.issuer }).execute()
    const get = async (url: string) => (await service.call("GET", url, undefined, as)).body
    const { data: listed } = await get("/api/console/transactions?limit=100")
    const before = (table: string, id: unknown) => rowsOf(table).find(row => row.id === id)
    for (const each of listed.filter((each: { type: string }) => each.type === "payment")) {
      const { paywall_id = null, session_id = null } = before("payments", each.id) ?? {}
      expect(each).toMatchObject({ paywallId: paywall_id, sessionId: session_id })
    }
    const { data: deposits } = await get("/api/console/deposits?limit=100")
    expect(deposits.length).toBeGreaterThan(15)
    for (const each of deposits) {
      const row = rowsOf("deposits").find(row => row.address === each.address.toLowerCase())
      expect(each).toMatchObject({ paywallId: row?.paywall_id ?? null, sessionId: row?.session_id ?? null })
    }

    await goOn(service)
  })
})

/** A transaction of another process that has read, and goes on until it is ended. */
async function transactionAt(url: string): Promise<{ end(): Promise<void> }> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query("begin; select from checkout_sessions")
  return client
}

describe.each([
  ["0040", "0041"],
  ["0048", "0049"],
  ["0056", "0057"],
  ["0060", "0061"],
])("a database of migration %s", (number, next) => {
  const dump = readDump(number)
  const said: string[] = []
  let user: { end(): Promise<void> } | undefined
  let database: OpenDatabase
  beforeAll(async () => {
    database = await openOlderDatabase(
      next,
      async (run, url) => {
        await dump.fill(run)
        if (url && number === "0056") user = await transactionAt(url)
      },
      sentence => {
        said.push(sentence)
        if (sentence.startsWith("A table is in use")) void user?.end()
      },
    )
    await user?.end()
    // The same service with another database: starting one for each takes as much CPU as all of this.
    service.ctx.db = database.db
    const ended = Math.max(...dump.rowsOf("payments").map(({ updated_at }) => Date.parse(String(updated_at))))
    service.advance(ended + 60_000 - service.ctx.now().getTime())
  })
  afterAll(() => database.close())

  it.runIf(onPostgres)("is not waited for while a table is in use, as requests would wait behind", () => {
    const again = said.filter(sentence => sentence.startsWith("A table is in use"))
    expect(again).toHaveLength(number === "0056" ? 1 : 0)
    expect(said.at(-1)).toMatch(/^Applied the migration/)
  })

  it("arrives with every row, and the service goes on with it", async () => {
    for (const table of dump.tables) {
      const { rows } = await sql<{ lost: Line | null; extra: number }>`
        with older as (select value as row from jsonb_array_elements(${dump.textOf(table)}::jsonb)),
          now as (select to_jsonb(t) as row from ${sql.table(table)} t)
        select (select jsonb_agg(older.row) from older where not exists (select from now where now.row @> older.row)) as lost,
          (select count(*)::int from now) - (select count(*)::int from older) as extra`.execute(service.ctx.db)
      expect(rows, table).toEqual([{ lost: null, extra: 0 }])
    }
    await goOn(service)
    // Escrows and subscriptions are computed from their rows again.
    const failures: unknown[] = []
    const log = Object.assign(Object.create(service.ctx.log), { error: (failure: unknown) => failures.push(failure) })
    const ctx = { ...service.ctx, log }
    const { db } = ctx
    for (const table of ["escrows", "subscriptions"] as const)
      await db.updateTable(table).set({ run_at: ctx.now() }).execute()
    const sessions = () => db.selectFrom("checkout_sessions").select(["id", "status", "amount"]).orderBy("id").execute()
    const before = await sessions()
    await advanceEscrows(ctx)
    await advanceSubscriptions(ctx)
    expect(failures).toEqual([])
    expect(await sessions()).toEqual(expect.arrayContaining(before))
  })
})
