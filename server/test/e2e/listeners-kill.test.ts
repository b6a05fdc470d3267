// A listener's puller, the API and the worker killed at each step, with the limits of the seed: each delivery arrives, few arrive
// twice, and the log has what the puller's receiver answered.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { emit } from "../../src/account/webhooks/emit.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import { type Context, inTransaction } from "../../src/platform/context.ts"
import { type OpenDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { ended, hold, kill, waiting } from "../killed.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { type Receiver, startReceiver } from "../receiver.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

const SECRET_KEY = "5f".repeat(32)
/** What one kill may repeat: as many as may be pulled without a result, a hundredth of all. */
const PER_KILL = 10
const ALL = 1_000

let postgres: TestPostgres
let database: OpenDatabase
let ctx: Context
let anvil: Anvil
let issuer: TestIssuer
let to: Receiver
let env: Record<string, string>
let url: string
let merchantId: string
let listener: string
let key: string
let api: ChildProcess
const others: ChildProcess[] = []

async function startApi(): Promise<void> {
  api = spawn(process.execPath, ["server/src/main.ts", "--role", "api"], {
    cwd: root,
    env,
    stdio: ["ignore", "ignore", "inherit"],
  })
  const isUp = () => fetch(`${url}/readyz`).then(({ ok }) => ok)
  await until("the API is ready", () => isUp().catch(() => false))
}

async function start(program: string, more: Record<string, string>): Promise<ChildProcess> {
  const child = spawn(process.execPath, [join(root, program)], {
    env: { ...plainEnv(), ...more },
    stdio: ["ignore", "pipe", "inherit"],
  })
  others.push(child)
  await once(child.stdout, "data")
  return child
}

/** A puller that kills itself at a delivery that is in a state. */
const startPuller = (when = "", at = 0) =>
  start("server/test/pull.ts", {
    URL: url,
    KEY: key,
    LISTENER: listener,
    TO: to.url,
    DIE_WHEN: when,
    DIE_AT: `${at}`,
  })
const startWorker = () =>
  start("server/test/deliver.ts", { DATABASE_URL: `${postgres.url}?application_name=sluice-deliver`, SECRET_KEY })

async function asOwner(method: string, path: string, body?: object) {
  const answer = await fetch(`${url}/api/console/${path}`, {
    method,
    headers: { authorization: `Bearer ${await issuer.token("shop")}`, "content-type": "application/json" },
    ...(body ? { body: JSON.stringify(body) } : {}),
  })
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  const given = (await answer.json()) as any
  expect(answer.status, JSON.stringify(given)).toBeLessThan(300)
  return given
}

const delivered = async () => {
  const { rows } = await sql<{
    n: number
  }>`select count(*)::int as n from deliveries where status = 'delivered'`.execute(ctx.db)
  return rows[0]?.n ?? 0
}
const reaches = (n: number) => until(`${n} are delivered`, async () => (await delivered()) >= n)
/** As if the time of all leases had passed. */
const endLeases = () =>
  sql`update deliveries set lease_until = clock_timestamp() - interval '1 second'
    where claim_id is not null and status = 'pending'`.execute(ctx.db)

describe("SIGKILL around a listener", () => {
  beforeAll(async () => {
    postgres = await startPostgres({ durable: true })
    anvil = await startAnvil()
    issuer = await startIssuer()
    to = await startReceiver()
    const port = await freePort()
    url = `http://127.0.0.1:${port}`
    env = {
      ...plainEnv(),
      MODE: "test",
      LOG_LEVEL: "error",
      PORT: `${port}`,
      DATABASE_URL: `${postgres.url}?application_name=sluice-api`,
      SECRET_KEY,
      OIDC_ISSUER: issuer.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      RPC_BASE_SEPOLIA: anvil.rpcUrl,
      TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
      DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
    }
    await startApi()
    database = await openPostgres(postgres.url, () => {})
    const settings = readSettings({ SECRET_KEY })
    ctx = { db: database.db, settings, now: () => new Date(), wakes: { wakeSoon: () => {} } } as unknown as Context
    merchantId = (await asOwner("GET", "settings")).merchantId
    key = (await asOwner("POST", "api-keys", { name: "laptop", scopes: ["webhooks"] })).key
    listener = (await asOwner("POST", "listeners", { events: ["subscription.renewal.created"] })).id
  })
  afterAll(async () => {
    for (const child of [...others, api]) if (child) await kill(child)
    await to?.stop()
    await database?.close()
    await issuer?.stop()
    await anvil?.stop()
    await postgres?.stop()
  })

  it("loses nothing of 1,000 deliveries, and repeats at most one in a hundred for each kill", async () => {
    for (let i = 0; i < ALL; i++)
      await inTransaction(ctx, ctx =>
        emit(ctx, { merchantId, type: "subscription.renewal.created", orderKey: `cs_${i}`, data: { i } as never }),
      )
    await startWorker()
    let kills = 0
    for (const [when, at] of [
      ["received", 55],
      ["handled", 58],
      ["reported", 50],
    ] as const) {
      const puller = await startPuller(when, at)
      if (puller.exitCode === null && puller.signalCode === null) await once(puller, "exit")
      kills++
      await endLeases()
    }
    await startPuller()
    await reaches(200)
    for (const [locked, statement] of [
      ["the claim", `select from webhooks where id = '${listener}' for update`],
      ["the report", "lock table delivery_attempts in access exclusive mode"],
    ] as const) {
      const before = await delivered()
      const letGo = await hold(postgres.url, statement)
      const pid = await waiting(ctx.db)
      const worker = others.find(child => child.spawnargs.some(each => each.endsWith("deliver.ts")))
      if (worker) await kill(worker)
      await kill(api)
      await letGo()
      await ended(ctx.db, pid)
      kills++
      await startApi()
      await startWorker()
      // The puller has what it was given, and reports it to the process that came: nothing waits for the end of a lease.
      await until(`more are delivered after ${locked}`, async () => (await delivered()) >= before + 2 * PER_KILL)
    }
    await reaches(ALL)
    const byEvent = Map.groupBy(to.received, ({ body }) => JSON.parse(body).id)
    expect(byEvent.size).toBe(ALL)
    expect(to.received.length - ALL).toBeLessThanOrEqual(kills * PER_KILL)
    expect(new Set(to.received.map(({ headers }) => headers["idempotency-key"])).size).toBe(ALL)
    const { rows: log } = await sql<{ id: string; status: number; answer: string }>`
      select delivery_id as id, status, answer from delivery_attempts`.execute(ctx.db)
    expect(new Set(log.map(({ status, answer }) => `${status} ${answer}`))).toEqual(new Set(["200 from localhost"]))
    expect(new Set(log.map(({ id }) => id)).size).toBe(ALL)

    const [{ idempotencyKey = "" } = {}] = to.received.map(({ headers }) => ({
      idempotencyKey: headers["idempotency-key"],
    }))
    await asOwner("POST", `deliveries/${idempotencyKey}/resend`, {})
    const times = () => to.received.filter(({ headers }) => headers["idempotency-key"] === idempotencyKey).length
    const before = times()
    await until("the resend arrives", () => times() > before)
    expect((await asOwner("GET", `deliveries/${idempotencyKey}`)).data.log.length).toBeGreaterThanOrEqual(1)
  })
})
