// Files that the database writes have byte for byte what the lists show, which this process formats, whatever the rows
// hold.
import { type RawBuilder, sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { flatValue } from "../../../test/flat-value.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { auditCsv } from "../../account/audit/write-audit-csv.ts"
import { booksCsv } from "../../ledger/books/read-books.ts"
import { transactionsCsv } from "../../ledger/books/read-transactions.ts"
import { depositsCsv } from "../../ledger/deposits/routes.ts"
import type { TxContext } from "../context.ts"
import { quoted } from "./send-csv.ts"

/** Ends within a fourth part; rows of one microsecond are on both sides of a part's end. */
const MORE_THAN_A_PART = 12_345
/** Ends with a second part. */
const TWO_PARTS = 8_000

const texts = [
  "=1+1",
  "+1",
  "-1",
  "@x",
  "\tx",
  "\rx",
  "\nx",
  "x\n=1",
  " =1",
  "'=1",
  "",
  '"',
  'a"b""c',
  "a,b",
  "a\r\nb,\r\n",
  "\\",
  "\\n",
  "é€😀\u2028\u0001\u007f",
  `0x${"ab".repeat(20)}`,
  `0x${"ab".repeat(32)}`,
  `to 0x${"cd".repeat(20)}!`,
  '{"a":"b"}',
  "00000000-0000-4000-8000-000000000000j{}",
  "x".repeat(300),
  "null",
  "$1 %s {0}",
]
const amounts = ["1", "10", "123456", "1000000", "1000001", "99999999", "100000000000000000000", `${10n ** 59n + 7n}`]
const tokens = [
  { address: `0x${"1a".repeat(20)}`, symbol: "DAI", decimals: 18 },
  { address: `0x${"2b".repeat(20)}`, symbol: "NONE", decimals: 0 },
  { address: `0x${"3c".repeat(20)}`, symbol: null, decimals: 36 },
  { address: `0x${"4d".repeat(20)}`, symbol: null, decimals: null },
]
const hex = (n: number, bytes: number) => `0x${"a7".repeat(bytes - 2)}${n.toString(16).padStart(4, "0")}`
const id = (prefix: string, n: number) => `${prefix}_${String(n).padStart(24, "z")}`

let service: TestService
let merchantId: string
beforeAll(async () => {
  service = await startService()
  merchantId = await service.merchant("shop")
  await addMoney()
  await addEntries()
})
afterAll(() => service.stop())

/** Inserts rows that no route would make, so without triggers and foreign keys. */
const insert = (rows: RawBuilder<unknown>) =>
  service.ctx.db.transaction().execute(async tx => {
    await sql`set local session_replication_role = replica`.execute(tx)
    await rows.execute(tx)
  })
const fromJson = (table: string, rows: object[]) =>
  insert(sql`insert into ${sql.table(table)} (${sql.join(Object.keys(rows[0] ?? {}).map(name => sql.ref(name)))})
    overriding system value select ${sql.join(Object.keys(rows[0] ?? {}).map(name => sql.ref(name)))}
    from jsonb_populate_recordset(null::${sql.table(table)}, ${JSON.stringify(rows)}::jsonb)`)

/** Deposits with and without payees, what reached them and what left them, in every token and of every size. */
async function addMoney(): Promise<void> {
  const { chainId, token } = paperNetwork
  const at = (n: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString().replace("000Z", `${n % 1000}999Z`)
  await fromJson(
    "tokens",
    tokens.map(each => ({ ...each, chain_id: chainId, asked_at: at(0) })),
  )
  await fromJson("recipient_sets", [{ id: 1, created_at: at(0) }])
  const percents = [1, 333_333, 10_000, 656_666]
  await fromJson(
    "recipients",
    percents.map((percent_e4, n) => ({ set_id: 1, position: n, address: hex(90 + n, 20), percent_e4 })),
  )
  const kinds = [token.address, ...tokens.map(({ address }) => address)]
  const every = kinds.flatMap(token => amounts.map(amount => ({ token, amount }))).map((each, n) => ({ ...each, n }))
  const common = { chain_id: chainId, merchant_id: merchantId }
  await fromJson(
    "deposits",
    every.map(({ n }) => ({
      ...common,
      id: n + 1,
      address: hex(n + 200, 20),
      factory: hex(1, 20),
      salt: hex(n, 32),
      owner: hex(2, 20),
      approver: hex(3, 20),
      payees_hash: hex(4, 32),
      recipient_set_id: n % 3 ? null : 1,
      created_at: at(n),
      open_after_s: 2_000_000_000 + n,
      resource_id: id(["pw", "cs", "bdl"][n % 3] ?? "", n),
      watched: true,
      watched_until: at(n),
      watched_number: 1,
      older_factory: false,
    })),
  )
  await fromJson(
    "transfers",
    every.map(({ n, token, amount }) => ({
      ...common,
      id: n + 1,
      tx_hash: hex(n, 32),
      token,
      to_address: hex(n + 200, 20),
      k: 0,
      deposit_id: n + 1,
      from_address: hex(n + 300, 20),
      value: amount,
      block_number: n,
      block_hash: hex(n, 32),
      log_index: 0,
      block_time: at(n),
      state: n % 2 ? "final" : "confirmed",
      created_at: at(n),
      single_source: false,
    })),
  )
  await fromJson(
    "payments",
    every.map(({ n, token, amount }) => ({
      ...common,
      id: id("pay", n),
      payer: hex(n + 300, 20),
      amount,
      tx_hash: hex(n, 32),
      token,
      status: n % 4 ? "granted" : "open",
      exception: n % 4 ? null : "underpaid",
      deposit_id: n + 1,
      beside: false,
      resource_id: id(["pw", "cs", "bdl"][n % 3] ?? "", n),
      created_at: at(n),
      updated_at: at(n),
      agent: n % 5 === 0,
      notified_paid: true,
    })),
  )
  const claimed = every.filter(({ n }) => n % 6)
  await fromJson(
    "claims",
    claimed.map(({ n }) => ({ transfer_id: n + 1, payment_id: id("pay", n) })),
  )
  await fromJson(
    "outflows",
    every.map(({ n, token, amount }) => ({
      ...common,
      id: `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`,
      deposit_id: n + 1,
      token,
      amount,
      reason: n % 2 ? "recovery" : "unknown",
      tx_hash: hex(n + 900, 32),
      recipient: hex(n + 400, 20),
      block_number: n,
      block_hash: hex(n, 32),
      log_index: 0,
      block_time: at(n + 100),
      created_at: at(n),
    })),
  )
}

/** Entries of the audit log with every text in every place that takes one. */
async function addEntries(): Promise<void> {
  const forms = {
    price: 5_000_001,
    percent_e4: 333_333,
    chain_id: paperNetwork.chainId,
    access_duration_s: 3_600,
    paused_at: null,
  }
  const networks = [paperNetwork.chainId, 1, null]
  await fromJson(
    "audit_entries",
    texts.map((text, n) => ({
      merchant_id: merchantId,
      at: "2026-02-01T00:00:00.123Z",
      n: n + 1_000,
      actor_kind: "console",
      actor_id: text,
      id: `00000000-0000-4000-9000-${String(n).padStart(12, "0")}`,
      actor_issuer: n % 2 ? text : null,
      action: n % 5 ? "paywall.changed" : "wallet_proof.created",
      object_id: n % 5 ? text : hex(n, 20),
      chain_id: networks[n % 3],
      before: n % 2 ? { ...forms, name: text } : null,
      user_agent: text,
      request_id: text,
      after: { address: hex(n, 20), description: text, [`x_${text}`]: [text, 1.5, true], recipients: [forms] },
    })),
  )
}

type Item = Record<string, unknown>

/** Compares a file with the list: `cells` of each row, by the names in the first line. */
async function compare(list: string, cells: (row: Item) => Item, least: number): Promise<void> {
  const get = (path: string) => service.call("GET", `/api/console/${path}`, undefined, { as: "shop" })
  const [{ body: file }, { body: whole }] = await Promise.all([get(`${list}.csv`), get(`${list}?limit=1000`)])
  const [first = ""] = file.split("\r\n", 1)
  const line = (row: Item) =>
    first
      .split(",")
      .map((name: string) => row[name] ?? "")
      .join(",")
  expect(whole.data.length).toBeGreaterThanOrEqual(least)
  expect(file.split("\n")).toEqual([first, ...whole.data.map(cells).map(line), ""].join("\r\n").split("\n"))
}

describe("a file is byte for byte what its list shows", () => {
  it("transactions", () => compare("transactions", flatValue, 40))

  it("books", () => compare("books", flatValue, 80))

  it("deposits", async () => {
    const payees = (row: Item) =>
      (row.payees as { address: string; percent: number }[]).map(each => `${each.address}=${each.percent}`)
    await compare("deposits", row => ({ ...row, payees: payees(row).join(" ") }), 40)
  })

  it("audit log", async () => {
    const text = (value: unknown) => quoted(value as string | null)
    const fields = (value: unknown) => (value === null ? null : quoted(JSON.stringify(value)))
    type Entry = Item & { actor: { kind: string; id: string; issuer: string }; object: { id: string } }
    const cells = (row: Item) => {
      const { actor, object, before, after, userAgent, requestId, ...entry } = row as Entry
      return {
        ...entry,
        actorKind: actor.kind,
        actorId: text(actor.id),
        actorIssuer: text(actor.issuer),
        objectId: text(object.id),
        before: fields(before),
        after: fields(after),
        userAgent: text(userAgent),
        requestId: text(requestId),
      }
    }
    await compare("audit", cells, texts.length)
  })
})

describe("a file of several parts has each row once and the newest first, also of rows of one microsecond", () => {
  const numbers = sql`generate_series(1, ${MORE_THAN_A_PART}::int) n`
  const at = sql`timestamptz '2026-03-01' + (n / 7) * interval '1 microsecond'`
  const hash = sql`'0x' || md5(n::text) || md5(n::text)`
  const address = sql`'0x' || md5(n::text) || 'abcdef00'`
  const { chainId, token } = paperNetwork
  const rows: Record<string, RawBuilder<unknown>> = {
    audit: sql`insert into audit_entries (merchant_id, at, n, actor_kind, action, object_id) overriding system value
      select 'many', ${at}, n + 5000, 'operator', 'paywall.changed', 'o' || n from ${numbers}`,
    deposits: sql`insert into deposits (id, chain_id, address, factory, salt, owner, approver, payees_hash, open_after_s, resource_id,
        created_at, merchant_id, watched_until) overriding system value
      select n + 5000, ${chainId}::int, ${address}, ${address}, ${hash}, ${address}, ${address}, ${hash}, n, 'pw_' || n, ${at}, 'many', ${at}
      from ${numbers}`,
    books: sql`insert into transfers (id, chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number, block_hash,
        log_index, block_time, state, created_at, merchant_id) overriding system value
      select n + 5000, ${chainId}::int, ${hash}, ${token.address}::text, ${address}, 0, n + 5000, ${address}, n, n, ${hash}, 0, ${at}, 'final', ${at}, 'many'
      from ${numbers}`,
    transactions: sql`insert into payments (id, chain_id, payer, amount, tx_hash, status, created_at, updated_at, merchant_id, token,
        resource_id)
      select 'pay_' || n, ${chainId}::int, ${address}, n, ${hash}, 'granted', ${at}, ${at}, 'many', ${token.address}::text, 'pw_' || n
      from ${numbers}`,
  }
  const files: Record<string, (ctx: TxContext, merchantId: string, filter: object) => AsyncGenerator<string | Buffer>> =
    {
      audit: auditCsv,
      deposits: depositsCsv,
      books: booksCsv,
      transactions: transactionsCsv,
    }
  it.each(Object.entries(rows))("%s", async (file, insertion) => {
    await insert(insertion)
    const lines = files[file]?.(service.ctx, "many", {}) ?? []
    const ids = []
    for await (const part of lines) for (const line of `${part}`.split("\r\n")) if (line !== "") ids.push(line)
    expect(new Set(ids).size).toBe(ids.length)
    expect(ids).toHaveLength(MORE_THAN_A_PART + 1)
    const times = ids.slice(1).map(line => Math.floor(Number(/\b(?:o|pw_)(\d+)/.exec(line)?.[1]) / 7))
    expect(times).toEqual(times.toSorted((a, b) => b - a))
  })

  it("also if it ends with a part", async () => {
    await insert(sql`insert into audit_entries (merchant_id, at, n, actor_kind, action, object_id) overriding system value
      select 'two', ${at}, n + 50000, 'operator', 'paywall.changed', 'o' || n from generate_series(1, ${TWO_PARTS}::int) n`)
    let file = ""
    for await (const part of auditCsv(service.ctx, "two", {})) file += part
    const numbers = [...file.matchAll(/\bo(\d+)\b/g)].map(([, n]) => Number(n))
    expect(numbers).toEqual(Array.from({ length: TWO_PARTS }, (_, i) => TWO_PARTS - i))
    expect(file.split("\r\n")).toHaveLength(TWO_PARTS + 2)
  })
})
