/**
 * What the paths that users notice cost at 1,000 and at 1,000,000 rows of each table. All rows belong to one merchant,
 * and every second payment is at one paywall. Each size has a Postgres that survives a power cut and a service of its
 * own. Both are measured in turns, so that the machine is the same for both. The driver sends HTTP requests from
 * another process; what has no route (a settlement, a turn of payouts, a webhook) is timed inside the service.
 * `script/bench growth`; `BENCH_ROWS` is for a quick try with fewer rows, `--only TEXT` for the paths whose name
 * contains it
 */
import { type ChildProcess, fork } from "node:child_process"
import { randomBytes, randomUUID } from "node:crypto"
import { once } from "node:events"
import { cpus } from "node:os"
import { performance } from "node:perf_hooks"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { Client } from "undici"
import { claimDeliveries } from "../server/src/account/webhooks/claim-deliveries.ts"
import { emit } from "../server/src/account/webhooks/emit.ts"
import { recordAttempts } from "../server/src/account/webhooks/record-attempts.ts"
import { ensureCursor } from "../server/src/ledger/scanner/scan-round.ts"
import { settleDue } from "../server/src/ledger/settlement/settle.ts"
import { verifyRound } from "../server/src/ledger/settlement/verify-payments.ts"
import { inTransaction } from "../server/src/platform/context.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { startPayoutRig } from "../server/test/payouts.ts"
import { startPostgres } from "../server/test/postgres.ts"
import {
  addRows,
  allTables,
  FREQUENT_PAYER,
  firstPayer,
  firstSession,
  type Owner,
  popularHash,
  popularPayer,
} from "./rows.ts"

const FEW = 1_000
const MANY = Number(process.env.BENCH_ROWS ?? 1_000_000)
const RUNS = 5
/** Measurements of each path in a run; the run's figure is their median. */
const TIMES = 40
const GOAL = 1.2
const AS = "shop"
const WEBHOOK = `c${"w".repeat(24)}`
const PRICE = 1_000_000n
const SLUG = "growth"

const say = (text: string) => process.stdout.write(`${text}\n`)
const median = (values: number[]): number =>
  values.sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? Number.NaN

/** What the service reports once it is filled. */
interface Ready {
  base: string
  token: string
  key: string
  paywallId: string
  /** The paywall of every second payment. */
  popularId: string
  payer: string
  /** A checkout that waits for its payment. */
  sessionId: string
}

/** What is timed in the service; each returns its milliseconds. */
type Inner = Record<string, () => Promise<number>>

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now()
  await work()
  return performance.now() - from
}

async function serve(url: string, rows: number): Promise<void> {
  const database = await openPostgres(url, error => process.stderr.write(`database: ${error.message}\n`))
  const rig = await startPayoutRig({}, database)
  // Bypasses the proxy through which tests observe the calls.
  for (const endpoint of rig.network.endpoints) endpoint.url = rig.anvil.rpcUrl
  await rig.empty()
  const { service, network } = rig
  const merchantId = await service.merchant(AS)
  const paywall = await rig.sell()
  const shop = await rig.sell([33.3333, 33.3333, 33.3334])
  await rig.mint(shop.deposit.address, 10n ** 15n)
  const { body } = await service.call("POST", "/api/console/api-keys", { name: "server" }, { as: AS })
  const popular = { paywallId: shop.id, deposit: shop.deposit }
  const owner: Owner = { merchantId, paywallId: paywall.id, webhookId: WEBHOOK, token: rig.token, popular }
  await addRows(database.background, owner, allTables, 1, rows)
  await database.db
    .insertInto("webhooks")
    .values({
      id: WEBHOOK,
      merchant_id: merchantId,
      url: "https://shop.example",
      events: '["*"]',
      active: true,
      description: null,
      created_at: new Date(),
      updated_at: new Date(),
    })
    .execute()
  await ensureCursor(service.ctx, network)
  const session = await service.call("POST", "/api/console/checkouts", { amount: "5" }, { as: AS })
  await service.call("POST", "/api/console/payment-links", { title: "Book", amount: "5", slug: SLUG }, { as: AS })
  const inner = innerPaths(rig, merchantId, shop)
  process.once("disconnect", () => process.exit())
  process.on("message", async (name: string) => process.send?.(await inner[name]?.()))
  const ready: Ready = {
    base: await service.listen(),
    token: await service.issuer.token(AS),
    key: body.key,
    paywallId: paywall.id,
    popularId: shop.id,
    payer: firstPayer,
    sessionId: session.body.id,
  }
  process.send?.(ready)
}

type Rig = Awaited<ReturnType<typeof startPayoutRig>>

function innerPaths(rig: Rig, merchantId: string, shop: Awaited<ReturnType<Rig["sell"]>>): Inner {
  const { network, service } = rig
  const { ctx } = service
  /** A transfer as the scan stores it, with the hash that its payer submitted. */
  const arrive = async (by?: string) => {
    const now = ctx.now()
    const hash = `0x${randomBytes(32).toString("hex")}` as never
    const payer = (by ?? `0x${randomBytes(20).toString("hex")}`) as never
    const common = { chain_id: network.chainId, tx_hash: hash as never }
    await ctx.db
      .insertInto("transfers")
      .values({
        ...common,
        token: rig.token,
        to_address: shop.deposit.address,
        k: 0,
        deposit_id: shop.deposit.id,
        from_address: payer,
        value: PRICE,
        block_number: 1n,
        block_hash: hash as never,
        log_index: 0,
        block_time: now,
        state: "confirmed",
        run_at: now,
        created_at: now,
      })
      .execute()
    await ctx.db
      .insertInto("submissions")
      .values({
        ...common,
        resource_id: shop.id,
        by_sender: true,
        address: payer,
        status: "verifying",
        message: "",
        submitted_at: now,
        updated_at: now,
      })
      .execute()
  }
  const settle = async (by?: string) => {
    await arrive(by)
    return await timed(() => settleDue(ctx, network))
  }
  const isWaiting = async () => {
    const { rows } = await sql`select from payouts where state in ('queued', 'assigned') limit 1`.execute(ctx.db)
    return rows.length > 0
  }
  const drain = async () => {
    while (await isWaiting()) await rig.round()
  }
  const claim = () => {
    const of = {
      now: ctx.now(),
      leaseMs: 60_000,
      limit: 50,
      perLane: 50,
      taken: new Map(),
      inFlight: new Map(),
      room: 1_000,
      rooms: new Map(),
      afterLane: "",
      lanes: 50,
    }
    return claimDeliveries(ctx.db, of)
  }
  const webhook = async (): Promise<Record<"emit" | "claim" | "record", number>> => {
    const orderKey = `cs_${randomUUID().slice(0, 8)}`
    const event = { merchantId, type: "checkout.session.completed", orderKey, data: { sessionId: orderKey } } as never
    const emitted = await timed(() => inTransaction(ctx, ctx => emit(ctx, event)))
    let held: Awaited<ReturnType<typeof claim>>["rows"] = []
    const claimed = await timed(async () => {
      held = (await claim()).rows
    })
    const attempt = { durationMs: 1, status: 200, error: null, answer: null } as never
    const results = held.map(delivery => ({
      delivery,
      webhook: { id: WEBHOOK, url: delivery.target.endpoint?.url ?? "", failing: false },
      startedAt: ctx.now(),
      attempt,
    }))
    const recorded = await timed(() => recordAttempts(ctx, results))
    return { emit: emitted, claim: claimed, record: recorded }
  }
  return {
    "settle a payment with three payouts": async () => {
      const ms = await settle()
      await drain()
      return ms
    },
    "settle a payment of a frequent payer": async () => {
      const ms = await settle(FREQUENT_PAYER)
      await drain()
      return ms
    },
    "sign and send three payouts": async () => {
      await settle()
      const ms = await timed(() => rig.round())
      await drain()
      return ms
    },
    "a turn of payouts, nothing due": () => timed(() => rig.round()),
    "a round of the verification, nothing new": async () => {
      await rig.anvil.client.mine({ blocks: 1 })
      await sql`update cursors set run_at = ${new Date(0)}`.execute(ctx.db)
      return await timed(() => verifyRound(ctx, network))
    },
    "emit an event": async () => (await webhook()).emit,
    "claim a delivery": async () => (await webhook()).claim,
    "record its result": async () => (await webhook()).record,
  }
}

/** One of the two sizes, as the driver knows it. */
interface Side extends Ready {
  client: Client
  child: ChildProcess
  rows: number
}

type Path = (side: Side) => Promise<number>

async function ask(side: Side, path: string, more: { method?: string; body?: string; headers?: object } = {}) {
  const headers = {
    ...(path.startsWith("/api/console") ? { authorization: `Bearer ${side.token}` } : { "x-api-key": side.key }),
    ...more.headers,
  }
  const { method = "GET", body } = more
  const from = performance.now()
  const answer = await side.client.request({
    path,
    method: method as "GET",
    headers: { ...headers, ...(body ? { "content-type": "application/json" } : {}) },
    ...(body ? { body } : {}),
  })
  const text = await answer.body.text()
  const ms = performance.now() - from
  if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`)
  return { ms, text }
}

const get =
  (path: string | ((side: Side) => string)): Path =>
  async side =>
    (await ask(side, typeof path === "string" ? path : path(side))).ms

/** The page after the one in the middle of a list. */
function nextOf(list: string): Path {
  const cursors = new Map<Side, string>()
  return async side => {
    if (!cursors.has(side)) {
      const { text } = await ask(side, `${list}?limit=1&offset=${side.rows / 2}`)
      cursors.set(side, JSON.parse(text).next)
    }
    return (await ask(side, `${list}?after=${cursors.get(side)}`)).ms
  }
}

const post =
  (path: string, body: object, key?: () => string): Path =>
  async side =>
    (
      await ask(side, path, {
        method: "POST",
        body: JSON.stringify(body),
        headers: key ? { "idempotency-key": key() } : {},
      })
    ).ms

const inside =
  (name: string): Path =>
  async ({ child }) => {
    child.send(name)
    const [ms] = (await once(child, "message")) as [number]
    return ms
  }

/** One hash: a checkout takes ten that are being verified. */
const submitted = ({ sessionId }: Side) => ({ sessionId, txHash: `0x${"7a".repeat(32)}` })

const since = "2026-01-01T00:00:00Z"
const paths: Record<string, Path> = {
  "verify, with access": get(({ paywallId, payer }) => `/api/paywalls/${paywallId}/verify?address=${payer}`),
  "verify, no access": get(
    ({ paywallId }) => `/api/paywalls/${paywallId}/verify?address=0x${randomBytes(20).toString("hex")}`,
  ),
  "the state of a payer's page": get(({ paywallId }) => `/api/paywalls/${paywallId}`),
  "the state of a checkout": get(({ sessionId }) => `/api/pay/status/${sessionId}`),
  "the state of a paid checkout": get(`/api/pay/status/${firstSession}`),
  "the page of a checkout": get(({ sessionId }) => `/pay/${sessionId}`),
  "the receipt of a checkout": get(`/receipt/${firstSession}`),
  "a merchant's checkout": get(`/api/checkouts/${firstSession}`),
  "the state of a payment": get(
    ({ popularId }) => `/api/paywalls/${popularId}/payments/${popularHash}?address=${popularPayer}`,
  ),
  "make a checkout": post("/api/checkouts", { amount: "5" }),
  "make a checkout with a key": post("/api/checkouts", { amount: "5" }, randomUUID),
  "start a checkout of a link": post("/api/pay/sessions", { slug: SLUG }),
  "submit the hash of a checkout": async side => await post("/api/pay/confirm", submitted(side))(side),
  "submit the hash of a paywall": async side => {
    const body = { txHash: `0x${randomBytes(32).toString("hex")}`, address: `0x${randomBytes(20).toString("hex")}` }
    return await post(`/api/paywalls/${side.popularId}/pay`, body)(side)
  },
  "the same again": post("/api/checkouts", { amount: "5" }, () => "the-same"),
  "make a paywall": post("/api/console/paywalls", { name: "Film", price: "0.50" }),
  ...Object.fromEntries(
    [
      "transactions",
      "checkouts",
      "books",
      "deposits",
      "deliveries",
      "events",
      "payments",
      "audit",
      "paywalls",
      "foreign-tokens",
      "subscriptions",
      "invoices",
      "payments/refunds",
    ].map(list => [`list: ${list}`, get(`/api/console/${list}`)]),
  ),
  "list: grants": get(({ paywallId }) => `/api/console/paywalls/${paywallId}/grants`),
  "list: deliveries of a webhook": get(`/api/console/webhooks/${WEBHOOK}/deliveries`),
  ...Object.fromEntries(
    [
      "transactions?type=payment",
      "transactions?type=sweep",
      "transactions?type=return",
      "transactions?status=open",
      "transactions?status=granted",
      "checkouts?status=confirmed",
      "checkouts?status=failed",
      "deliveries?status=failed",
      "deliveries?status=skipped",
      "deliveries?status=pending",
      "deliveries?event=paywall.granted",
      "deliveries?destination=callback",
      "events?type=paywall.granted",
      "events?type=checkout.session.completed",
      "audit?action=webhook.created",
      "audit?action=paywall.changed",
      "audit?actorKind=operator",
      "audit?actor=user-2",
      `transactions?from=${since}`,
      `transactions?to=${since}`,
      `books?to=${since}`,
    ].map(list => [`list: ${list.replace(/=2026.*/, "")}`, get(`/api/console/${list}`)]),
  ),
  ...Object.fromEntries(
    ["transactions", "checkouts", "books", "deliveries", "audit"].map(list => [
      `next of ${list}`,
      nextOf(`/api/console/${list}`),
    ]),
  ),
  ...Object.fromEntries(
    Object.keys(innerPaths({ service: {} } as never, "", {} as never)).map(name => [name, inside(name)]),
  ),
}

// Processes that were started here end with this process.
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))

async function start(rows: number): Promise<{ side: Side; stop(): Promise<void> }> {
  const postgres = await startPostgres({ fsync: true })
  const child = fork(import.meta.filename, ["serve", postgres.url, `${rows}`], { execArgv: [] })
  child.once("exit", code => {
    if (code) throw new Error(`the service of ${rows} rows ended with ${code}`)
  })
  const [ready] = (await once(child, "message")) as [Ready]
  const client = new Client(ready.base)
  const stop = async () => {
    child.removeAllListeners("exit").kill("SIGTERM")
    await client.destroy()
    await postgres.stop()
  }
  return { side: { ...ready, rows, client, child }, stop }
}

async function measure(only: string, times: number): Promise<void> {
  const few = await start(FEW)
  const many = await start(MANY)
  say(
    `${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}; median of ${RUNS} runs (range), ms\n`,
  )
  say(`${"".padEnd(44)}${`${FEW} rows`.padEnd(26)}${`${MANY} rows`.padEnd(26)}ratio`)
  try {
    for (const [name, path] of Object.entries(paths).filter(([name]) => name.includes(only))) {
      const sides = [few.side, many.side].map(side => ({ side, runs: [] as number[] }))
      for (let run = 0; run <= RUNS; run++) {
        const of = sides.map(() => [] as number[])
        for (let time = 0; time < times; time++)
          for (const [n, { side }] of sides.entries()) of[n]?.push(await path(side))
        // The first warms up.
        if (run > 0) for (const [n, { runs }] of sides.entries()) runs.push(median(of[n] ?? []))
      }
      const [small = Number.NaN, large = Number.NaN] = sides.map(({ runs }) => median(runs))
      const shown = sides.map(({ runs }) =>
        `${median(runs).toFixed(2)} (${runs[0]?.toFixed(2)} to ${runs.at(-1)?.toFixed(2)})`.padEnd(26),
      )
      say(
        `${name.padEnd(44)}${shown.join("")}${(large / small).toFixed(2)}${large / small > GOAL ? "  above the goal" : ""}`,
      )
    }
  } finally {
    await Promise.all([few.stop(), many.stop()])
  }
}

if (process.argv[2] === "serve") await serve(process.argv[3] ?? "", Number(process.argv[4]))
else {
  const { values } = parseArgs({ options: { only: { type: "string" }, times: { type: "string" } } })
  await measure(values.only ?? "", Number(values.times ?? TIMES))
  process.exit(0)
}
