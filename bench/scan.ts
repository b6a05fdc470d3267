/**
 * What a round of the scan costs with 150 receiving addresses, and with 150,000 of which 150 are in use: calls, bytes
 * and time of a round, the statements beside it, and the hourly check of the balances of all other addresses.
 *
 * Also what the scan for foreign tokens costs, every five minutes: in a quiet hour, and in a flood of transfers that
 * anyone can emit.
 */
import { sql } from "kysely"
import { encodeFunctionResult, type Hex, multicall3Abi } from "viem"
import type { Address } from "../server/src/platform/chain/hex.ts"
import { postgresBinaries, startPostgres } from "../server/test/postgres.ts"

const SIZES = [150, 150_000]
const IN_USE = 150
const ROUNDS = 7
/**
 * The highest ratio of a round with all addresses to one with few: calls and bytes exactly, time with some tolerance.
 */
const MOST = { calls: 1, bytes: 1.05, ms: 2 }

const postgres = postgresBinaries() ? await startPostgres({ fsync: true }) : undefined
if (postgres) process.env.DATABASE_URL = postgres.url
// The module that opens databases reads DATABASE_URL when it is loaded.
const { paperNetwork, startService } = await import("../server/test/service.ts")
const { ScriptedChain, startNode } = await import("../server/test/node.ts")
const { newEndpoint } = await import("../server/src/platform/chain/endpoints.ts")
const { checkDormantDeposits, makeDepositsDormant } = await import(
  "../server/src/ledger/scanner/check-dormant-deposits.ts"
)
const { foreignTokenRound } = await import("../server/src/ledger/scanner/scan-foreign-tokens.ts")
const { ensureCursor } = await import("../server/src/ledger/scanner/scan-round.ts")
const { verifyRound } = await import("../server/src/ledger/settlement/verify-payments.ts")
const { renewDeposits } = await import("../server/src/ledger/deposits/move-deposits.ts")

const service = await startService()
const chain = new ScriptedChain(service.ctx.now())
const node = await startNode(chain)
const zero = `0x${"0".repeat(64)}` as Hex
node.hook = (method, params) => {
  if (method !== "eth_call") return undefined
  const [{ data }] = params as unknown as [{ data: string }]
  // Each read in the call contains the selector of balanceOf once.
  const reads = data.split("70a08231").length - 1
  const result = Array.from({ length: reads }, () => ({ success: true, returnData: zero }))
  return encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result })
}
const network = { ...paperNetwork, endpoints: [newEndpoint("base-sepolia", node.url)] }
service.ctx.chain.networks.splice(0, 1, network)
const { db } = service.ctx

/** In parts, because a statement has a time limit. */
async function each(count: number, work: (from: number, to: number) => Promise<unknown>): Promise<void> {
  for (let from = 1; from <= count; from += 10_000) await work(from, Math.min(count, from + 9_999))
}

async function make(count: number): Promise<void> {
  await service.empty()
  const merchant = await service.merchant("shop")
  await ensureCursor(service.ctx, network)
  const now = service.ctx.now()
  await each(count, (from, to) =>
    sql`insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active,
      created_at, updated_at)
    select 'pw_' || i, ${merchant}, ${network.chainId}, 'Film', 5000000, 'USDC', 'url', 'one_time', true, ${now}, ${now}
    from generate_series(${from}::int, ${to}::int) i`.execute(db),
  )
  await each(count, (from, to) =>
    sql`insert into deposits (chain_id, address, factory, salt, owner, approver, payees_hash, open_after_s, resource_id, created_at,
      watched_until)
    select ${network.chainId}, '0x' || lpad(to_hex(i), 40, '0'), ${network.depositFactory}, '0x' || lpad(to_hex(i), 64, '0'),
      ${network.depositFactory}, ${network.depositFactory}, '0x' || repeat('0', 64), 4000000000, 'pw_' || i, ${now},
      ${now}::timestamptz + make_interval(hours => case when i <= ${IN_USE} then 1 else -48 end)
    from generate_series(${from}::int, ${to}::int) i`.execute(db),
  )
  await each(count, (from, to) =>
    sql`insert into paywall_versions (paywall_id, n, price, active, deposit_id, from_at)
    select d.resource_id, 1, 5000000, true, d.id, ${now} from deposits d
    where d.resource_id in (select 'pw_' || i from generate_series(${from}::int, ${to}::int) i)`.execute(db),
  )
  await sql`analyze`.execute(db)
}

interface Cost {
  calls: number
  bytes: number
  ms: number
}

/** What `work` asks of the node. */
async function costOf(work: () => Promise<unknown>): Promise<Cost> {
  const before = { calls: node.calls, bytes: node.bytes }
  const ms = await timed(work)
  return { calls: node.calls - before.calls, bytes: node.bytes - before.bytes, ms }
}

const FLOOD = 2_000
const worthless = `0x${"66".repeat(20)}` as Address

/**
 * Rounds of the scan for foreign tokens: the first one, one after five minutes, and one after five minutes of a flood.
 */
async function foreignTokens() {
  const round = async () => {
    chain.finalized = chain.head.number
    await sql`update cursors set finalized_number = greatest(finalized_number, 1)`.execute(db)
    await sql`update token_scans set run_at = ${new Date(0)}`.execute(db)
    return await costOf(() => foreignTokenRound(service.ctx, network))
  }
  const payments = async () => {
    chain.mine(1)
    await sql`update cursors set run_at = ${new Date(0)}`.execute(db)
    return await costOf(() => verifyRound(service.ctx, network))
  }
  // The chain's clock follows the service's, which was moved: by that clock an address left the scan.
  await round()
  chain.mine(3_600)
  for (let i = 0; i < 10; i++) await round()
  chain.mine(150)
  const quiet = await round()
  const before = await payments()
  const to = `0x${"1".padStart(40, "0")}`
  const from = network.depositFactory
  for (let i = 0; i < 10; i++)
    chain.pay(Array.from({ length: FLOOD }, () => ({ token: worthless, from, to, value: 1n })))
  const after = await payments()
  const flooded: Cost[] = []
  for (let i = 0; i < 3; i++) flooded.push(await round())
  const most = flooded.reduce((worst, each) => (each.calls > worst.calls ? each : worst))
  return { quiet, flooded: most, before, after }
}

const median = (values: number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

async function measure(count: number) {
  await make(count)
  let firstDormantMs = 0
  const watched = () => sql<{ n: number }>`select count(*)::int as n from deposits where watched`.execute(db)
  while (((await watched()).rows[0]?.n ?? 0) > IN_USE)
    firstDormantMs += await timed(() => makeDepositsDormant(service.ctx, network))
  // Autovacuum does this within a minute of so many changes.
  await sql`vacuum analyze`.execute(db)
  const rounds: { calls: number; bytes: number; ms: number }[] = []
  for (let i = 0; i < ROUNDS; i++) {
    chain.mine(30)
    await sql`update cursors set run_at = ${new Date(0)}`.execute(db)
    const before = { calls: node.calls, bytes: node.bytes }
    const ms = await timed(() => verifyRound(service.ctx, network))
    rounds.push({ calls: node.calls - before.calls, bytes: node.bytes - before.bytes, ms })
  }
  const dormantMs = await timed(() => makeDepositsDormant(service.ctx, network))
  const renewMs = await timed(() => renewDeposits(service.ctx))
  const before = { calls: node.calls, bytes: node.bytes }
  service.advance(3_700_000)
  let balancesMs = 0
  const due = () =>
    sql<{
      n: number
    }>`select count(*)::int as n from deposits where not watched and check_at <= ${service.ctx.now()}`.execute(db)
  while ((await due()).rows[0]?.n) balancesMs += await timed(() => checkDormantDeposits(service.ctx, network))
  const balances = { calls: node.calls - before.calls, bytes: node.bytes - before.bytes }
  const foreign = await foreignTokens()
  const of = (key: "calls" | "bytes" | "ms") => median(rounds.map(each => each[key]))
  return {
    calls: of("calls"),
    bytes: of("bytes"),
    ms: of("ms"),
    firstDormantMs,
    dormantMs,
    renewMs,
    balancesMs,
    balances,
    foreign,
  }
}

const say = (line: string) => process.stdout.write(`${line}\n`)
const few = await measure(SIZES[0] ?? 0)
const many = await measure(SIZES[1] ?? 0)
for (const [count, cost] of [
  [SIZES[0], few],
  [SIZES[1], many],
] as const) {
  say(
    `${count} addresses: a round ${cost.calls} calls, ${cost.bytes} bytes, ${cost.ms.toFixed(0)} ms; cooling ${cost.dormantMs.toFixed(0)} ms ` +
      `(the first ${cost.firstDormantMs.toFixed(0)}), renewal ${cost.renewMs.toFixed(0)} ms; balances of an hour: ` +
      `${cost.balances.calls} calls, ${cost.balances.bytes} bytes, ${cost.balancesMs.toFixed(0)} ms`,
  )
  const words = ({ calls, bytes, ms }: Cost) => `${calls} calls, ${bytes} bytes, ${ms.toFixed(0)} ms`
  const { quiet, flooded, before, after } = cost.foreign
  say(
    `  foreign tokens: a round ${words(quiet)}; the greatest of three after 20,000 worthless transfers ${flooded.calls} calls, ${flooded.bytes} bytes`,
  )
  // The time is that of the scripted node, which builds all logs for each call.
  say(`  a round for payments before them ${before.calls} calls, and after them ${after.calls}`)
}
const ratio = { calls: many.calls / few.calls, bytes: many.bytes / few.bytes, ms: many.ms / few.ms }
say(
  `A round with 150,000 over one with 150: calls ${ratio.calls.toFixed(2)}, bytes ${ratio.bytes.toFixed(2)}, time ${ratio.ms.toFixed(2)}`,
)
const isFlat = ratio.calls <= MOST.calls && ratio.bytes <= MOST.bytes && ratio.ms <= MOST.ms
say(isFlat ? "Flat." : `Not flat: the limits are ${JSON.stringify(MOST)}.`)
await service.stop()
await node.stop()
await postgres?.stop()
process.exit(isFlat ? 0 : 1)
