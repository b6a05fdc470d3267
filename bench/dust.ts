/**
 * What a flood of dust costs who settles, and who pays meanwhile: 20,000 transfers of 0.000001 to one checkout, invoice or paywall, of one
 * sender or of as many; and 350 checkouts of one link, dusted twice, while one of three endpoints takes four seconds. Prints for each the
 * rounds and the time until nothing is due, the longest stretch of synchronous work, the most memory, and how long another merchant's payment
 * waited that became due with the flood, or in its middle; with the ratio to a quiet hour.
 * `script/bench dust`; `BENCH_DUST` is for a quick try with fewer transfers, `--only TEXT` for the cases whose name contains it
 */
import { fork } from "node:child_process"
import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { cpus } from "node:os"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { encodeFunctionResult, multicall3Abi } from "viem"
import type { Row } from "../server/src/platform/db/schema.ts"
import { postgresBinaries, startPostgres } from "../server/test/postgres.ts"

const DUST = Number(process.env.BENCH_DUST ?? 20_000)
const LINKED = 350
/** Rounds follow each other at once here: what the scan costs beside settling is not measured. */
const MAX_ROUNDS = 2_000
const PRICE = 5_000_000n
const ONE_SENDER = `0x${"a2".repeat(20)}`
const PAYER = `0x${"a1".repeat(20)}`

const say = (text: string) => process.stdout.write(`${text}\n`)

if (process.argv[2] === "node") await serveNode(Number(process.argv[3]))

/** An endpoint that says that each address holds enough, after a while. */
async function serveNode(delayMs: number): Promise<never> {
  const word = `0x${"0".repeat(48)}${"f".repeat(16)}` as const
  const answer = ({ id, params }: { id: number; params: [{ data: string }] }) => {
    const data = params[0]?.data ?? ""
    const reads = data.split("70a08231").length - 1
    const many = Array.from({ length: reads }, () => ({ success: true, returnData: word }))
    const result = data.startsWith("0x70a08231")
      ? word
      : encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result: many })
    return { jsonrpc: "2.0", id, result }
  }
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const calls = JSON.parse(Buffer.concat(chunks).toString())
    await sleep(delayMs)
    response.end(JSON.stringify(Array.isArray(calls) ? calls.map(answer) : answer(calls)))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  process.once("disconnect", () => process.exit())
  process.send?.((server.address() as AddressInfo).port)
  return await new Promise(() => {})
}

const nodes = [50, 50, 4_000].map(delayMs => fork(import.meta.filename, ["node", `${delayMs}`], { execArgv: [] }))
const ports = await Promise.all(nodes.map(async node => (await once(node, "message"))[0] as number))

const postgres = postgresBinaries() ? await startPostgres({ fsync: true }) : undefined
if (postgres) process.env.DATABASE_URL = postgres.url
// The module that opens databases reads DATABASE_URL when it is loaded.
const { paperNetwork, startService } = await import("../server/test/service.ts")
const { newEndpoint } = await import("../server/src/platform/chain/endpoints.ts")
const { settleDue } = await import("../server/src/ledger/settlement/settle.ts")

const service = await startService()
const endpoints = ports.map((port, i) => newEndpoint("base-sepolia", `http://127.0.0.1:${port}`, i + 1))
const network = { ...paperNetwork, endpoints }
service.ctx.chain.networks.splice(0, 1, network)
const { db } = service.ctx

const depositOf = (resourceId: string): Promise<Row<"deposits">> =>
  db.selectFrom("deposits").selectAll().where("resource_id", "=", resourceId).executeTakeFirstOrThrow()

async function made(path: string, body: object, as: string): Promise<string> {
  const answer = await service.call("POST", `/api/console/${path}`, body, { as })
  if (answer.status !== 201) throw new Error(JSON.stringify(answer.body))
  return answer.body.id
}

let block = 1_000

/** Stores `n` confirmed transfers to a deposit, each in a transaction of its own. */
const arrive = (deposit: Row<"deposits">, n: number, value: bigint, from: string | "many") =>
  sql`insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number,
      block_hash, log_index, block_time, state, run_at, created_at)
    select ${network.chainId}, '0x' || lpad(to_hex(${block++}::bigint * 1000000 + n), 64, '0'), ${network.token.address}, ${deposit.address}, 0,
      ${deposit.id}, case when ${from} = 'many' then '0x' || lpad(to_hex(n), 40, '0') else ${from} end, ${value}, ${block}, '0x' || repeat('1', 64), n,
      at, 'confirmed', at, at from generate_series(1, ${n}::int) n, (values (${service.ctx.now()}::timestamptz)) as t (at)`.execute(
    db,
  )

/** Waits until a checkout is confirmed; returns the milliseconds. */
async function confirmed(sessionId: string): Promise<number> {
  const since = performance.now()
  for (;;) {
    const session = db.selectFrom("checkout_sessions").select("status").where("id", "=", sessionId)
    if ((await session.executeTakeFirstOrThrow()).status === "confirmed") return performance.now() - since
    await sleep(5)
  }
}

const isDue = async () => {
  const due = db.selectFrom("transfers").select("id").where("run_at", "<=", service.ctx.now())
  return (await due.limit(1).executeTakeFirst()) !== undefined
}

/** Rounds until nothing is due, and `waits` is over; returns how many had something to do. */
async function settleAll(waits: Promise<unknown> = Promise.resolve()): Promise<number> {
  let rounds = 0
  let isOver = false
  void waits.then(() => {
    isOver = true
  })
  while (rounds < MAX_ROUNDS) {
    if (await isDue()) {
      await settleDue(service.ctx, network)
      rounds++
    } else if (isOver) break
    else await sleep(2)
  }
  return rounds
}

async function payOther(): Promise<{ id: string; waited: () => Promise<number> }> {
  const id = await made("checkouts", { amount: "5" }, "other")
  const deposit = await depositOf(id)
  return {
    id,
    waited: async () => {
      await arrive(deposit, 1, PRICE, PAYER)
      return await confirmed(id)
    },
  }
}

interface Case {
  name: string
  /** Fills it; the flood is due afterwards. */
  flood(): Promise<void>
}

const atCheckout = (from: string) => async () =>
  void (await arrive(await depositOf(await made("checkouts", { amount: "5" }, "shop")), DUST, 1n, from))
const atPaywall = (from: string) => async () =>
  void (await arrive(await depositOf(await made("paywalls", { name: "a", price: "5" }, "shop")), DUST, 1n, from))

async function atInvoice(): Promise<void> {
  const productId = await made("products", { name: "Magazine", price: "5.00", billingInterval: "month" }, "shop")
  await arrive(await depositOf(await made("checkouts", { productId }, "shop")), DUST, 1n, ONE_SENDER)
}

/** Checkouts whose open payments a wallet can give back, so that each is asked for at the chain. */
async function atLink(): Promise<void> {
  const wallet = await service.call("PUT", "/api/console/settings", { approver: "wallet" }, { as: "shop" })
  if (wallet.status !== 200) throw new Error(JSON.stringify(wallet.body))
  const deposits: Row<"deposits">[] = []
  for (let n = 0; n < LINKED; n++) deposits.push(await depositOf(await made("checkouts", { amount: "5" }, "shop")))
  for (const deposit of deposits) await arrive(deposit, 1, 1n, ONE_SENDER)
  await settleAll()
  for (const deposit of deposits) await arrive(deposit, 1, 1n, ONE_SENDER)
}

const cases: Case[] = [
  { name: "one sender, one checkout", flood: atCheckout(ONE_SENDER) },
  { name: "many senders, one checkout", flood: atCheckout("many") },
  { name: "one sender, one paywall", flood: atPaywall(ONE_SENDER) },
  { name: "many senders, one paywall", flood: atPaywall("many") },
  { name: "one sender, one invoice", flood: atInvoice },
  { name: `${LINKED} checkouts, a slow endpoint`, flood: atLink },
]

async function measure({ flood }: Case, quietMs: number): Promise<string[]> {
  await begin()
  const first = await payOther()
  const second = await payOther()
  await flood()
  global.gc?.()
  const idle = process.memoryUsage().rss
  let most = idle
  const memory = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss)
  }, 20)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const since = performance.now()
  const waits = Promise.all([first.waited(), sleep(200).then(second.waited)])
  let rounds = await settleAll(waits)
  const ms = performance.now() - since
  // What nobody submitted is decided ten minutes later.
  service.advance(11 * 60_000)
  rounds += await settleAll()
  const all = performance.now() - since
  const [with_, within] = await waits
  delay.disable()
  clearInterval(memory)
  const ratio = (n: number) => `${n.toFixed(0)} ms (${(n / quietMs).toFixed(1)})`
  return [
    `${rounds}`,
    `${(ms / 1_000).toFixed(1)} s`,
    `${(all / 1_000).toFixed(1)} s`,
    `${(delay.max / 1e6).toFixed(0)} ms`,
    `+${((most - idle) / 1e6).toFixed(0)} MB`,
    ratio(with_),
    ratio(within),
  ]
}

async function begin(): Promise<void> {
  await service.empty()
  for (const name of ["shop", "other"]) await service.merchant(name)
}

/** The median wait of payments in a quiet hour, after the statements are prepared. */
async function quiet(): Promise<number> {
  await begin()
  const waits: number[] = []
  for (let n = 0; n < 15; n++) {
    const { waited } = await payOther()
    const wait = waited()
    await settleAll(wait)
    waits.push(await wait)
  }
  return waits.slice(5).sort((a, b) => a - b)[5] ?? Number.NaN
}

/** The longest pause of an event loop that does nothing: what the machine itself adds to each stretch. */
async function idlePause(): Promise<number> {
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  await sleep(3_000)
  delay.disable()
  return delay.max / 1e6
}

const { values } = parseArgs({ options: { only: { type: "string" } } })
const quietMs = await quiet()
const idleMs = await idlePause()
say(`${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}; ${DUST} transfers`)
say(`a quiet payment waits ${quietMs.toFixed(0)} ms; an idle loop's longest pause is ${idleMs.toFixed(0)} ms\n`)
const show = (cells: readonly string[]) => say(cells.map((cell, i) => cell.padEnd(i === 0 ? 36 : 18)).join(""))
show(["", "rounds", "confirmed", "all decided", "longest stretch", "memory", "paid with it", "paid within it"])
for (const each of cases.filter(({ name }) => name.includes(values.only ?? "")))
  show([each.name, ...(await measure(each, quietMs))])

await service.stop()
await postgres?.stop()
for (const node of nodes) node.disconnect()
process.exit(0)
