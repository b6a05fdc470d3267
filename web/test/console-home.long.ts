/**
 * Home, open for ten minutes while twenty payments arrive each second, under the limits that every person has: no request is refused, and
 * no row is wrong for more than six seconds. `HOME_SECONDS` shortens it.
 */
import { setTimeout as sleep } from "node:timers/promises"
import type { Browser, Page } from "playwright-core"
import { createPublicClient, encodeFunctionData, erc20Abi, formatUnits, type Hex, http } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, expect, it } from "vitest"
import { openPostgres } from "../../server/src/platform/db/open.ts"
import { newSandbox, type Sandbox, until } from "../../server/test/e2e/program.ts"
import { openBrowser } from "./browser.ts"
import { shows, visitsOf } from "./console-visits.ts"

const SECONDS = Number(process.env.HOME_SECONDS ?? 600)
const A_SECOND = 20
const WRONG_MS = 6_000
/** In base units; each payment has an amount of its own, which names it. */
const FIRST_AMOUNT = 10_001n

let browser: Browser
let sandbox: Sandbox
let closeDatabase: (() => Promise<void>) | undefined
const { open, close } = visitsOf(() => ({ browser, sandbox }))

beforeAll(async () => {
  await import("../src/console/build.ts")
  // A merchant's server may make more; the person at the console has the limits of every person.
  sandbox = await newSandbox({ LIMIT_CHECKOUT: "0", LIMIT_MERCHANT: "0" }, "migrated")
  await Promise.all([sandbox.start(), openBrowser().then(found => (browser = found))])
})
afterAll(async () => {
  await close()
  await browser?.close()
  await closeDatabase?.()
  await sandbox.remove()
})

/** Makes checkouts by the merchant's key and pays each, so many a second, until the signal; answers how many. */
async function sellOn(signal: AbortSignal): Promise<number> {
  const { rpcUrl, chainId, token, buyers, merchants } = sandbox.file()
  const client = createPublicClient({ transport: http(rpcUrl) })
  const accounts = buyers.map(({ privateKey }: { privateKey: Hex }) => privateKeyToAccount(privateKey))
  const nonces = new Map<number, number>()
  for (const [i, { address }] of accounts.entries()) nonces.set(i, await client.getTransactionCount({ address }))
  const fees = { gas: 120_000n, maxFeePerGas: 20_000_000_000n, maxPriorityFeePerGas: 1_000_000n }
  const sell = async (n: number) => {
    const units = FIRST_AMOUNT + BigInt(n)
    const order = { amount: formatUnits(units, 6), description: `Order ${n}` }
    const { status, body } = await sandbox.call("/api/checkouts", order, { "x-api-key": merchants[0].apiKey })
    if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [body.payTo, units] })
    const i = n % accounts.length
    const nonce = nonces.get(i) ?? 0
    nonces.set(i, nonce + 1)
    const transaction = { type: "eip1559", chainId, nonce, to: token.address, data, ...fees } as const
    await client.sendRawTransaction({ serializedTransaction: await accounts[i].signTransaction(transaction) })
  }
  // A block a second, as on a real network: anvil's own is one for each transfer, and twenty blocks a second are no network's.
  const rpc = (method: string, params: unknown[]) => client.request({ method, params } as never)
  await rpc("evm_setAutomine", [false])
  await rpc("evm_setIntervalMining", [1])
  const begun = Date.now()
  const all: Promise<void>[] = []
  while (!signal.aborted) {
    const due = Math.floor(((Date.now() - begun) / 1_000) * A_SECOND)
    while (all.length < due) all.push(sell(all.length))
    await sleep(20)
  }
  await Promise.all(all)
  return all.length
}

interface Row {
  id: string
  amount: string
  state: string
}

const rowsOf = (page: Page): Promise<Row[]> =>
  page.evaluate(() =>
    [...document.querySelectorAll('section[aria-label="Last payments"] tbody tr')].map(row => ({
      id: row.querySelector("a")?.getAttribute("href")?.split("/").at(-1) ?? "",
      amount: row.querySelector(".amount")?.getAttribute("title") ?? "",
      state: row.querySelector(".pill")?.textContent ?? "",
    })),
  )

it("shows each payment within six seconds, and no request is refused", async context => {
  if (!sandbox.databaseUrl) return context.skip("Only Postgres answers beside the service.")
  const opened = await openPostgres(sandbox.databaseUrl, error => {
    throw error
  })
  const { db } = opened
  closeDatabase = opened.close
  const { page, faults } = await open("/", sandbox.file().merchants[0].name)
  const refused: string[] = []
  let requests = 0
  page.on("response", response => {
    if (!response.url().includes("/api/")) return
    requests++
    if (response.status() === 429) refused.push(response.url())
  })
  // Nothing came in yet, and the page says so.
  await shows(page, "Received, last 30 days", "0.00", "No payments yet")

  const over = new AbortController()
  const selling = sellOn(over.signal)
  selling.catch(() => undefined)
  /** The newest payments as the database has them, by when they were first seen there. */
  const seenAt = new Map<string, number>()
  const amounts = new Map<string, string>()
  let worst = 0
  let samples = 0
  const end = Date.now() + SECONDS * 1_000
  while (Date.now() < end) {
    const truth = await db
      .selectFrom("payments")
      .select(["id", "amount"])
      .orderBy("created_at", "desc")
      .limit(400)
      .execute()
    const now = Date.now()
    for (const { id, amount } of truth) {
      if (!seenAt.has(id)) seenAt.set(id, now)
      amounts.set(id, String(amount))
    }
    const shown = await rowsOf(page)
    if (truth.length >= 10) {
      samples++
      for (const { id, amount, state } of shown) {
        const units = String(Math.round(Number(amount.split(" ")[0]) * 1e6))
        // What is shown and was never written is wrong at once.
        if (amounts.has(id)) expect({ id, units, state }).toEqual({ id, units: amounts.get(id), state: "Paid" })
      }
      const ids = new Set(shown.map(({ id }) => id))
      // The rows are wrong since the eleventh payment after the newest one of them was written.
      const [newest] = shown
      const at = truth.findIndex(({ id }) => id === newest?.id)
      const missing = at < 0 ? truth : truth.slice(0, at)
      const oldest = missing.filter(({ id }) => !ids.has(id)).at(-1)
      worst = Math.max(worst, oldest ? now - (seenAt.get(oldest.id) ?? now) : 0)
    }
    await sleep(250)
  }
  over.abort()
  const sent = await selling
  const count = async () => {
    const { n } = await db
      .selectFrom("payments")
      .select(e => e.fn.countAll().as("n"))
      .executeTakeFirstOrThrow()
    return Number(n)
  }
  const there = await count()
  const figures = { seconds: SECONDS, sent, there, samples, worstMs: worst, requests, refused: refused.length }
  process.stdout.write(`Home: ${JSON.stringify(figures)}\n`)
  expect(refused).toEqual([])
  expect(worst).toBeLessThanOrEqual(WRONG_MS)
  await until("every payment is there", async () => (await count()) === sent)
  expect(faults).toEqual([])
}, 1_200_000)
