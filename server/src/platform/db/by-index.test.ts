/**
 * No statement reads a whole table that grows. Without an index it would be quick in every other test, as all tables
 * are short there. Here each statement of the routes, and of money on its way from the chain to a receiver, is
 * explained where every other way to read costs too much: one that still reads all rows has no index
 * (`docs/contributors/decisions/0043-by-index.md`).
 */
import { sql } from "kysely"
import pg from "pg"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { prepare, routes, send, service, startEverything, stopEverything } from "../../../test/everything.ts"
import { DAY_MS, lifeOf } from "../../../test/life.ts"
import { startPayoutRig } from "../../../test/payouts.ts"
import { startReceiver } from "../../../test/receiver.ts"
import { relaysOn } from "../../../test/relays.ts"
import { openDeliverer } from "../../account/webhooks/deliver-events.ts"
import { openSender } from "../../account/webhooks/send.ts"
import { payoutLane } from "../../ledger/payouts/payout-lane.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { payoutRound } from "../../ledger/txmanager/run-round.ts"
import { loopsOf } from "../../worker.ts"
import type { Context } from "../context.ts"

/** Tables with a few rows for each wallet, network or process. */
const SMALL = ["cursors", "endpoint_troubles", "receipt_keys", "signing_keys", "wallets"]

/** Statements that may read a whole table, by how they begin, each with the reason. */
const EXCEPTIONS: Record<string, string> = {
  'paywalls: select "id" from "paywalls" where "merchant_id"': "here all are of one merchant",
  'bundles: select "id" from "bundles" where "merchant_id"': "here all are of one merchant",
  'deposits: select * from "deposits" where "resource_id" = $1 order by "id" desc limit':
    "here half are of one paywall",
  "changes: /* named: changes_of */":
    "it reads the first change, in the order of an index, and the merchant's by another",
  "changes: select xid::text, n": "it reads the oldest thousands, in the order of an index",
  "figure_deltas: /* named: fold_figures */":
    "it takes the first thousands of whatever there is, in the order of the key",
}

/** The last values of each statement that this process sent since the test began. */
const sent = new Map<string, unknown[]>()
const { query } = pg.Client.prototype
beforeEach(() => {
  sent.clear()
  pg.Client.prototype.query = function (this: pg.Client, ...given: unknown[]) {
    const [statement] = given as [{ text?: string; values?: unknown[] } | string]
    if (typeof statement === "object" && statement.text) sent.set(statement.text, statement.values ?? [])
    return query.apply(this, given as never)
  } as typeof query
})
afterEach(() => {
  pg.Client.prototype.query = query
})

interface Plan {
  "Node Type": string
  "Relation Name"?: string
  "Index Name"?: string
  "Index Cond"?: string
  Plans?: Plan[]
}

const nodesOf = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)]

/** A client of the database that a context uses. */
async function clientOf({ db }: Context): Promise<pg.Client> {
  const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(db)
  const url = Object.assign(new URL(process.env.DATABASE_URL ?? ""), { pathname: `/${rows[0]?.name}` })
  const client = new pg.Client({ connectionString: url.href })
  await client.connect()
  return client
}

/** The statements so far that read all rows of a table which grows and is not empty, each after the table's name. */
async function wholeReads(ctx: Context): Promise<string[]> {
  const statements = [...sent].filter(([text]) =>
    /^\s*(\/\*.*?\*\/\s*)?(select|with|insert|update|delete)\b/i.test(text),
  )
  const client = await clientOf(ctx)
  try {
    await client.query("analyze")
    const { rows } = await client.query(
      `select c.relname, i.indpred is not null as is_partial from pg_class c left join pg_index i on i.indexrelid = c.oid
      where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'i') and pg_relation_size(c.oid) > 0`,
    )
    const filled = new Set(rows.map(({ relname }) => relname))
    const partial = new Set(rows.filter(({ is_partial }) => is_partial).map(({ relname }) => relname))
    // The planner is to see a million rows. It takes this from the catalogue, as rows in each page of the real file.
    await client.query("begin")
    await client.query(
      "update pg_class set reltuples = 1000000, relpages = 1 where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')",
    )
    await client.query(
      "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off",
    )
    const found: string[] = []
    for (const [text, values] of statements) {
      const { rows } = await client.query(`explain (format json) ${text}`, values)
      const whole = nodesOf(rows[0]["QUERY PLAN"][0].Plan).filter(
        node =>
          node["Node Type"] === "Seq Scan" ||
          (node["Node Type"].includes("Index") && !node["Index Cond"] && !partial.has(node["Index Name"])),
      )
      for (const { "Relation Name": table, "Index Name": index = "" } of whole)
        if (table ? filled.has(table) && !SMALL.includes(table) : filled.has(index))
          found.push(`${table ?? index}: ${text.replaceAll(/\s+/g, " ").trim()}`)
    }
    return found
  } finally {
    await client.end()
  }
}

const unexpected = async (ctx: Context) =>
  (await wholeReads(ctx)).filter(found => !Object.keys(EXCEPTIONS).some(start => found.startsWith(start)))

describe.runIf(onPostgres)("on Postgres, no statement reads a whole table", () => {
  it("of any route", async () => {
    await startEverything()
    await prepare()
    for (const route of routes) await send(route)
    expect(sent.size).toBeGreaterThan(200)
    const found = await unexpected(service.ctx)
    await stopEverything()
    expect(found).toEqual([])
  })

  it("of a payment, from the chain to a receiver and to the merchant's wallet", async () => {
    const rig = await startPayoutRig()
    const shop = await startReceiver()
    const { ctx } = rig.service
    const life = lifeOf(rig)
    const relays = relaysOn(rig)
    await relays.begin()
    await life.live()
    // By a transfer that is submitted, and by a signature.
    const sold = await relays.start({ amount: 5, callbackUrl: shop.url })
    const bought = await relays.start({ amount: 5 })
    const { transactionHash: txHash } = await life.send(sold.payTo, 5_000_000n)
    expect((await rig.service.call("POST", "/api/pay/confirm", { sessionId: sold.id, txHash })).status).toBe(200)
    const signed = await relays.sign(await relays.buyer(), bought)
    expect((await relays.submit(bought, signed)).status).toBe(200)
    for (let i = 0; i < 3; i++) {
      await payoutRound(ctx, payoutLane(rig.network, rig.signer))
      await payoutRound(ctx, relayLane(rig.network, rig.relayer))
      await life.advance(DAY_MS)
      await life.verify()
      // The comparison of the books reads all rows, once an hour.
      for (const loop of loopsOf(ctx)) if (!loop.name.startsWith("books ")) await loop.round(ctx)
    }
    const sender = openSender(ctx.settings.webhooks)
    const deliverer = openDeliverer(ctx, sender)
    while ((await deliverer.round()) > 0) await deliverer.idle()
    await sender.close()
    expect(shop.received.map(({ body }) => JSON.parse(body).event)).toContain("checkout.session.completed")
    expect((await relays.status(bought.id)).status).toBe("confirmed")
    expect(sent.size).toBeGreaterThan(200)
    const found = await unexpected(ctx)
    await rig.stop()
    await shop.stop()
    expect(found).toEqual([])
  })
})
