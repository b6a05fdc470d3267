/**
 * What docs/operators/operations.md promises of many machines: two regions with an API and a worker each, a Postgres with a synchronous replica, and
 * Redis. While checkouts are paid, Redis is killed, the primary is killed and its replica promoted, and one region is killed. Nothing that was
 * answered is lost; each payment is granted once and paid out once, each event delivered; `/readyz` says what is wrong meanwhile.
 * `script/bench failover` runs it; of the tests, `replica.test.ts` promotes a replica, and `failover.test.ts` of the limits loses Redis.
 */
import assert from "node:assert/strict"
import { type ChildProcess, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import { type Hex, parseAbiItem, parseEther } from "viem"
import { privateKeyToAddress } from "viem/accounts"
import type { Address } from "../../src/platform/chain/hex.ts"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer } from "../issuer.ts"
import { fundPayers, payAll } from "../payers.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { startReceiver } from "../receiver.ts"
import { startRedis } from "../redis.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

/** Checkouts, and how many buyers pay them at the same time. */
export interface Size {
  checkouts: number
  buyers: number
}

/** Seconds from the loss of the primary: until a write was answered again, and until all was paid out and delivered. */
export type Times = Record<"writes" | "settled", number>

const PAYOUT_ADDRESS = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"
const PRICE = 5_000_000n
const payoutKey: Hex = `0x${createHash("sha256").update("payout of the failover").digest("hex")}`
const LIMITS = ["CONSOLE", "CHECKOUT", "MERCHANT", "PAY_CONFIRM", "PAY_STATUS", "PUBLIC"]
const transferEvent = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")

/** A primary whose commits wait until its replica has them on disk, and the replica. */
async function startPair(): Promise<{ primary: TestPostgres; standby: TestPostgres }> {
  const primary = await startPostgres({ durable: true })
  const standby = await startPostgres({ durable: true, replicaOf: primary })
  const client = new pg.Client({ connectionString: primary.url })
  await client.connect()
  await client.query("alter system set synchronous_standby_names = '*'")
  await client.query("select pg_reload_conf()")
  const isSynchronous = "select 1 from pg_stat_replication where sync_state = 'sync'"
  await until("commits wait for the replica", async () => (await client.query(isSynchronous)).rowCount === 1)
  await client.end()
  return { primary, standby }
}

async function openStage() {
  const [{ primary, standby }, redis, anvil, issuer, receiver] = await Promise.all([
    startPair(),
    startRedis(),
    startAnvil(),
    startIssuer(),
    startReceiver(),
  ])
  const token = await deployTestUsdc(anvil.client)
  await fundPayers(anvil, token)
  await anvil.client.setBalance({ address: privateKeyToAddress(payoutKey), value: parseEther("10") })
  const hosts = [primary, standby].map(({ url }) => new URL(url).host)
  const env = {
    ...plainEnv(),
    MODE: "test",
    LOG_LEVEL: "fatal",
    DATABASE_URL: `postgres://sluice@${hosts.join(",")}/postgres?target_session_attrs=read-write`,
    DATABASE_REPLICA_URL: standby.url,
    REDIS_URL: redis.url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    NETWORKS: "base-sepolia",
    RPC_BASE_SEPOLIA: anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: token,
    ESCROW_BASE_SEPOLIA: "off",
    DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, privateKeyToAddress(payoutKey)),
    PAYOUT_PRIVATE_KEY: payoutKey,
    PAYOUT_MAX_FEE: "500",
    GAS_BUDGET: "0",
    SWEEP_ABOVE: "1",
    VERIFY_INTERVAL: "1s",
    WEBHOOK_ALLOW_CIDRS: "127.0.0.0/8",
    // Counted in Redis, and never reached.
    ...Object.fromEntries(LIMITS.map(name => [`LIMIT_${name}`, "1000000"])),
  }
  const programs: ChildProcess[] = []
  /** An API or a worker; answers where it listens and its end by SIGKILL. */
  const start = async (role: "api" | "worker") => {
    const port = `${await freePort()}`
    const child = spawn(process.execPath, ["server/src/main.ts", "--role", role], {
      cwd: root,
      env: { ...env, PORT: port, HEALTH_PORT: port },
      stdio: ["ignore", "inherit", "inherit"],
    })
    programs.push(child)
    return { url: `http://127.0.0.1:${port}`, kill: () => killed(child) }
  }
  return {
    primary,
    standby,
    redis,
    anvil,
    issuer,
    receiver,
    token,
    start,
    close: async () => {
      for (const child of programs) await killed(child)
      await Promise.all([anvil.stop(), issuer.stop(), receiver.stop(), redis.stop()])
      await standby.stop()
      await primary.stop()
    },
  }
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise(resolve => child.once("exit", resolve))
  child.kill("SIGKILL")
  await ended
}

interface Sale {
  id: string
  payTo: Hex
}

/** A merchant and its buyers, who ask whichever API answers, as behind a load balancer, until they have their answer. */
function openShop(
  urls: string[],
  { anvil, token, receiver }: { anvil: Anvil; token: Address; receiver: { url: string } },
) {
  const sales: Sale[] = []
  let turn = 0
  let paying: Promise<void> = Promise.resolve()
  /** Repeats the request at each API in turn until one answers with a 2xx. */
  const insist = async (path: string, headers: Record<string, string>, body: object, method = "POST") => {
    for (;;) {
      const url = urls[turn++ % urls.length]
      const answer = await fetch(url + path, {
        method,
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      }).catch(() => undefined)
      // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
      const found = (await answer?.json().catch(() => undefined)) as any
      if (answer?.ok && found) return found
      assert.ok(!answer || answer.status >= 500 || answer.status === 409, `${path}: ${JSON.stringify(found)}`)
      await sleep(20)
    }
  }
  return {
    sales,
    insist,
    sell: async (n: number, key: string): Promise<void> => {
      const order = { amount: "5", callbackUrl: receiver.url }
      const sale: Sale = await insist("/api/checkouts", { "x-api-key": key, "idempotency-key": `order-${n}` }, order)
      // Answered: from here on it must not be lost.
      sales.push(sale)
      await pay(sale)
    },
  }
  /** One at a time: the chain's accounts have their nonces. */
  async function pay({ payTo }: Sale): Promise<void> {
    const mine = paying.then(() => payAll(anvil, token, [payTo]))
    paying = mine.then(
      () => {},
      () => {},
    )
    await mine
  }
}

/** Runs the drill; throws where anything is lost, done twice, or not said. */
export async function failoverDrill({ checkouts, buyers }: Size): Promise<Times> {
  const stage = await openStage()
  const { primary, standby, redis, anvil, issuer, receiver, token, start } = stage
  const database = new pg.Pool({ connectionString: standby.url })
  database.on("error", () => {})
  const rows = async (text: string) => (await database.query(text)).rows
  const count = async (text: string): Promise<number> => (await rows(`select count(*)::int as n from ${text}`))[0].n
  const mining = new AbortController()
  try {
    const north = { api: await start("api"), worker: await start("worker") }
    const ready = ({ url }: { url: string }) =>
      fetch(`${url}/readyz`).then(
        async answer => ({ status: answer.status, text: await answer.text() }),
        () => ({ status: 0, text: "" }),
      )
    await until("the first API is ready", async () => (await ready(north.api)).status !== 0)
    const south = { api: await start("api"), worker: await start("worker") }
    await until("the second API answers", async () => (await ready(south.api)).status !== 0)
    const blocks = mineUntil(anvil, mining.signal)
    const shop = openShop([north.api.url, south.api.url], { anvil, token, receiver })
    const as = { authorization: `Bearer ${await issuer.token("shop")}` }
    await shop.insist("/api/console/settings", as, { payoutAddress: PAYOUT_ADDRESS }, "PUT")
    const { key } = await shop.insist("/api/console/api-keys", as, { name: "server" })

    let next = 0
    let allowed = 0
    const buying = Array.from({ length: buyers }, async () => {
      while (next < checkouts)
        if (next < allowed) await shop.sell(next++, key)
        else await sleep(20)
    })
    const load = Promise.all(buying)
    let failure: unknown
    load.catch(error => {
      failure = error
    })
    /** Waits for this part of all sales; the buyers go on up to `most`. */
    const sold = async (part: number, most = part) => {
      allowed = Math.ceil(checkouts * most)
      await until("it is sold", () => {
        if (failure) throw failure
        return shop.sales.length >= checkouts * part
      })
    }

    await sold(0.1)
    await redis.kill()
    await sold(0.3)
    await until("something is paid out", async () => (await count("payouts where state = 'final'")) > 0)
    await sold(0.4, 0.7)

    const lostAt = performance.now()
    const seconds = () => (performance.now() - lostAt) / 1_000
    await primary.kill()
    await until("each API says that the database is gone", async () =>
      (await Promise.all([ready(north.api), ready(south.api)])).every(({ status }) => status === 503),
    )
    const before = shop.sales.length
    await standby.promote()
    await until("a write is answered", () => shop.sales.length > before)
    const writes = seconds()
    await until("the lost replica is an alarm", async () => (await ready(south.api)).text.includes("replica: left out"))

    await redis.restart()
    await sold(0.75, 1)
    await Promise.all([north.api.kill(), north.worker.kill()])
    // Leases of the killed end by the database's clock, within half a minute; that is not waited for here.
    for (const table of ["cursors", "wallets", "deliveries", "reconciliations"])
      await rows(
        `update ${table} set lease_until = clock_timestamp() - interval '1 second' where lease_until is not null`,
      )
    await load
    await until("all is confirmed, paid out and delivered", async () => {
      const paidOut = await count("payouts where state = 'final'")
      const open =
        (await count("deliveries where status <> 'delivered'")) + (await count("payouts where state <> 'final'"))
      return (await count("checkout_sessions where status = 'confirmed'")) === checkouts && open === 0 && paidOut > 0
    })
    const settled = seconds()
    mining.abort()
    await blocks
    await compare(stage, shop.sales, rows)
    await until("it is ready", async () => (await ready(south.api)).status === 200)
    return { writes, settled }
  } finally {
    mining.abort()
    await database.end()
    await stage.close()
  }
}

/** A block each half second: payments and payouts are confirmed by those that follow. */
async function mineUntil({ client }: Anvil, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await client.mine({ blocks: 1 })
    await sleep(500)
  }
}

/** What was answered, what the database has, what the receiver got, and what the chain says. */
async function compare(
  { anvil, token, receiver }: { anvil: Anvil; token: Address; receiver: { received: { body: string }[] } },
  sales: readonly Sale[],
  rows: (text: string) => Promise<Record<string, unknown>[]>,
): Promise<void> {
  const ids = sales.map(({ id }) => id).sort()
  const known = (await rows("select id from checkout_sessions order by id")).map(({ id }) => id)
  assert.deepEqual(known, ids, "each order has one checkout, and none that was answered is lost")
  const granted = await rows("select resource_id from payments where status = 'granted' order by resource_id")
  assert.deepEqual(
    granted.map(row => row.resource_id),
    ids,
    "each is paid once",
  )
  const events = await rows("select distinct event_id as id from deliveries")
  const got = new Set(receiver.received.map(({ body }) => JSON.parse(body).id))
  assert.deepEqual(
    events.filter(({ id }) => !got.has(id)),
    [],
    "each event was delivered",
  )
  const bodies = receiver.received.map(({ body }) => body).join()
  assert.deepEqual(
    ids.filter(id => !bodies.includes(id)),
    [],
    "each checkout was notified of",
  )
  const logs = await anvil.client.getLogs({
    address: token,
    event: transferEvent,
    args: { from: sales.map(({ payTo }) => payTo) },
    fromBlock: 0n,
    toBlock: "latest",
  })
  const swept = logs.map(({ args }) => `${args.from} ${args.to} ${args.value}`.toLowerCase()).sort()
  const due = sales.map(({ payTo }) => `${payTo} ${PAYOUT_ADDRESS} ${PRICE}`.toLowerCase()).sort()
  assert.deepEqual(swept, due, "each deposit was paid out once, whole")
  const [books] = await rows("select sum(inflow)::text as inflow, sum(committed)::text as committed from deposit_books")
  const sum = `${BigInt(sales.length) * PRICE}`
  assert.deepEqual(books, { inflow: sum, committed: sum }, "the books are the chain's")
  const [wallet] = await rows("select status, halted_reason from wallets")
  assert.deepEqual(wallet, { status: "active", halted_reason: null })
}
