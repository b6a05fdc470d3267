/**
 * The chaos that payouts must outlive: several worker processes on a real Postgres and a real chain behind proxies that fail
 * and lie, workers ended by SIGKILL at each moment that matters and at random, blocks displaced, transactions dropped,
 * leases taken away from whoever works, and a signer on another machine that is slow, down, cut off or wrong, and signs differently
 * each time.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import pg from "pg"
import { erc20Abi, type Hex, toHex } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { reconcileRound } from "../../src/ledger/reconciliation/reconcile.ts"
import { returnPayment } from "../../src/ledger/settlement/resolve-exception.ts"
import type { SellingContext } from "../../src/ledger/settlement/sellable.ts"
import { settleDue } from "../../src/ledger/settlement/settle.ts"
import { createSplit } from "../../src/ledger/splits/manage-splits.ts"
import { checkNetwork } from "../../src/platform/chain/check-network.ts"
import { newEndpoint } from "../../src/platform/chain/endpoints.ts"
import type { Address, Hash } from "../../src/platform/chain/hex.ts"
import type { Network, NetworkSettings } from "../../src/platform/chain/networks.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import { atOnce, inTransaction } from "../../src/platform/context.ts"
import { type OpenDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { openWakes } from "../../src/platform/jobs/wake.ts"
import { processLimits } from "../../src/platform/limits/limiter.ts"
import { openLog } from "../../src/platform/log.ts"
import { createPaywall } from "../../src/products/paywalls/manage-paywalls.ts"
import { sales } from "../../src/sales.ts"
import { type Anvil, deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../anvil.ts"
import { plainEnv, root, until } from "../e2e/program.ts"
import { fundPayers, payAll } from "../payers.ts"
import { type RemoteSigners, type SignerFault, startRemoteSigners } from "../remote-signers.ts"
import { type FaultyProxy, type Rates, startFaultyProxy } from "./faulty-proxy.ts"
import type { KillPoint, Mutant, WorkerOptions } from "./payout-worker.ts"
import { unreconciled } from "./reconcile.ts"
import { type Expected, violations } from "./verify.ts"

const SHARES = 3
const BLOCK_MS = 150
const PAYMENT = 5_000_000n
/** Every so manieth payment is too little, and goes back to its payer whole. */
const RETURN_EVERY = 5
/** Payouts that become due at once while the rest waits for more workers to be ended. */
const HELPING = 12

/** How long a careless engine goes on once it has been careless, unless somebody is paid twice before. */
const AFTERMATH_MS = 30_000

type Doom = KillPoint | "before send" | "after send" | "at random"
const dooms: Doom[] = [
  "after signing",
  "before commit",
  "after commit",
  "before send",
  "after send",
  "before final",
  "at random",
]

/** How often a signer does what, from 0 to 1; `late`: it signs after a while. */
export type SignerRates = Partial<Record<SignerFault | "late", number>>

/** The longest that a late signature takes. */
const LATE_MS = 600

export interface ChaosOptions {
  postgresUrl: string
  payouts: number
  workers: number
  /** How often each way of being ended is met. */
  killsOfEach: number
  rates: Rates
  /** The key is with a signer that does this; without it each worker has the key. */
  signer?: SignerRates
  reorgs: boolean
  mutant?: Mutant
  /** Afterwards, which rows are altered by hand, each to be found. */
  alter?: "one" | "all"
  seed: number
  /** After so long it is judged as it stands. */
  limitMs: number
  say?: (text: string) => void
}

interface Report {
  violations: string[]
  kills: Record<Doom, number>
  reorgs: number
  dropped: number
  replacements: number
  /** Rounds of the reconciliation that went through meanwhile. */
  reconciliations: number
  /** How often the signer did what; `twice`: it signed what it had signed before. */
  signer: Partial<Record<SignerFault | "late" | "twice", number>>
  /** Rows that were altered by hand afterwards. */
  altered: number
  ms: number
}

/** Sets everything up, lets it happen, and reports what did not hold. */
export async function runChaos(options: ChaosOptions): Promise<Report> {
  const random = randomOf(options.seed)
  const stage = await setStage(options, random)
  const startedAt = performance.now()
  const report: Report = {
    violations: [],
    kills: Object.fromEntries(dooms.map(doom => [doom, 0])) as Report["kills"],
    reorgs: 0,
    dropped: 0,
    replacements: 0,
    reconciliations: 0,
    signer: {},
    altered: 0,
    ms: 0,
  }
  const signers = stage.signers
  if (signers && options.signer) signers.fault = misbehaving(options.signer, random, report)
  const over = new AbortController()
  try {
    const playing = [
      play(over.signal, () => mineAndReorg(stage, options, random, report)),
      play(over.signal, () => takeLeases(stage)),
      // A mutant must be caught by what it did, and not be halted before.
      ...(options.mutant ? [] : [play(over.signal, () => keepReconciling(stage, report))]),
      ...Array.from({ length: options.workers }, (_, i) =>
        keepWorking(stage, options, random, report, i + 1, over.signal),
      ),
    ]
    const { limitMs } = options
    if (options.mutant) await until("the engine was careless", () => wasCareless(stage), limitMs)
    // What a mutant has done may let nothing end.
    const waitMs = options.mutant ? AFTERMATH_MS : limitMs
    const isEnough = async () =>
      (options.mutant !== undefined && (await wasPaidTwice(stage))) || (await isOver(stage, options, report))
    await until("all payouts have ended", isEnough, waitMs).catch(error => {
      report.violations.push(`jammed: ${error.message}`)
    })
    over.abort()
    await Promise.all(playing)
    report.violations.push(...(await violations(stage.database.db, stage.anvil, expectedOf(stage))))
    const deadlocks = await sql<{ n: number }>`select deadlocks::int as n from pg_stat_database
      where datname = current_database()`.execute(stage.database.db)
    if (deadlocks.rows[0]?.n !== 0) report.violations.push(`${deadlocks.rows[0]?.n} deadlocks`)
    if (options.alter) {
      const { found, altered } = await unreconciled(stage.ctx, stage.anvil, stage.wallet, options.alter)
      report.violations.push(...found)
      report.altered = altered
    }
    const attempts = await stage.database.db.selectFrom("transaction_attempts").select("n").execute()
    if (signers) report.signer.twice = signers.asked.length - new Set(signers.asked).size
    report.replacements = attempts.filter(({ n }) => n > 0).length
    report.ms = Math.round(performance.now() - startedAt)
    return report
  } finally {
    over.abort()
    await stage.close()
  }
}

interface Stage {
  ctx: SellingContext
  anvil: Anvil
  database: OpenDatabase
  databaseUrl: string
  proxies: FaultyProxy[]
  signers: RemoteSigners | undefined
  network: NetworkSettings
  key: Hex
  wallet: Address
  token: Address
  deposits: Address[]
  owed: Map<Address, bigint>
  children: Map<number, { child: ChildProcess; doom: Doom | undefined; nth: number }>
  close(): Promise<void>
}

const expectedOf = (stage: Stage): Expected => ({
  token: stage.token,
  wallet: stage.wallet,
  firstNonce: 0n,
  deposits: stage.deposits,
  owed: stage.owed,
  broadcast: new Set(stage.proxies.flatMap(proxy => [...proxy.broadcast])),
})

async function setStage(options: ChaosOptions, random: () => number): Promise<Stage> {
  // Finality eight blocks back, so that a reorg can displace what was mined.
  const anvil = await startAnvil({ slotsInAnEpoch: 4 })
  const { client } = anvil
  await placeSharedContracts(client)
  const token = await deployTestUsdc(client)
  await fundPayers(anvil, token)
  const key = toHex(randomBytes(32))
  const wallet = privateKeyToAccount(key).address.toLowerCase() as Address
  await client.setBalance({ address: wallet, value: 10n ** 21n })
  const depositFactory = await deployDepositFactory(client, wallet)
  const proxies = [await startFaultyProxy(anvil.rpcUrl, random), await startFaultyProxy(anvil.rpcUrl, random)]
  const signers = options.signer && (await startRemoteSigners(key))
  const name = `chaos_${randomBytes(6).toString("hex")}`
  const admin = new pg.Client({ connectionString: options.postgresUrl })
  await admin.connect()
  await admin.query(`create database ${name}`)
  await admin.end()
  const url = new URL(options.postgresUrl)
  url.pathname = `/${name}`
  const database = await openPostgres(url.href, () => {})
  const network: NetworkSettings = {
    name: "base-sepolia",
    chainId: 84532,
    rpcUrls: [anvil.rpcUrl],
    token,
    confirmations: 1,
    depositFactory,
    sanctionsOracle: undefined,
  }
  const ctx: SellingContext = {
    db: database.db,
    settings: readSettings({ LOG_LEVEL: "fatal" }),
    log: openLog("fatal"),
    now: () => new Date(),
    chain: { networks: [await checkNetwork(network)] },
    limits: processLimits(),
    sells: sales,
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: new AbortController().signal,
  }
  const stage: Stage = {
    ctx,
    anvil,
    database,
    databaseUrl: url.href,
    proxies,
    signers,
    network,
    key,
    wallet,
    token,
    deposits: [],
    owed: new Map(),
    children: new Map(),
    close: async () => {
      for (const { child } of stage.children.values()) child.kill("SIGKILL")
      await database.close()
      for (const proxy of proxies) await proxy.stop()
      await signers?.stop()
      await anvil.stop()
    },
  }
  await sellAndPay(ctx, stage, Math.ceil(options.payouts / SHARES))
  // Every second payout, so that most deposits keep the money of one that waits. A careless engine on a slow machine would
  // otherwise find them empty before it paid twice, and be kept from it by the simulation.
  await sql`update payouts set run_at = now() + interval '1 hour' where id in (
    select id from (select id, row_number() over (order by id) as n from payouts) numbered where n % 2 = 0)`.execute(
    database.db,
  )
  // A mutant must be caught by what it does, and not be kept from it.
  if (options.mutant) await sql`drop trigger payouts_keep_promises on payouts`.execute(database.db)
  if (options.mutant === "requeue on unknown error") await requeueOnUnknown(database.db)
  await client.mine({ blocks: 12 })
  await client.setAutomine(false)
  for (const proxy of proxies) {
    // The first may fail, and does not lie.
    proxy.rates = proxy === proxies[0] ? { ...options.rates, lie: 0 } : options.rates
    proxy.onSend = (worker, point) => {
      const playing = stage.children.get(worker)
      if (playing?.doom !== point || --playing.nth > 0) return false
      return playing.child.kill("SIGKILL")
    }
  }
  return stage
}

/**
 * Payments of 5 USDC, each divided among recipients that nobody else has, confirmed and granted; some are too little for what
 * is sold, and are returned.
 */
async function sellAndPay(ctx: SellingContext, stage: Stage, payments: number): Promise<void> {
  const network = ctx.chain.networks[0] as Network
  const { db } = ctx
  const now = ctx.now()
  const merchant = "mer_chaos"
  await db.insertInto("merchants").values({ id: merchant, name: "", email: null, created_at: now }).execute()
  const address = `0x${"c".repeat(40)}` as Address
  await db
    .insertInto("payout_addresses")
    .values({ merchant_id: merchant, chain_id: network.chainId, address })
    .execute()
  const percents = [333_333, 333_333, 333_334]
  const amounts = [1_666_665n, 1_666_665n, 1_666_670n]
  for (let i = 0; i < payments; i++)
    await inTransaction(ctx, async ctx => {
      if (i % RETURN_EVERY === 0) return await createPaywall(ctx, merchant, { name: "p", price: "10" })
      const recipients = percents.map((percentE4, share) => {
        const address = `0xaa${(i * SHARES + share).toString(16).padStart(38, "0")}` as Address
        stage.owed.set(address, amounts[share] ?? 0n)
        return { address, percentE4, label: null }
      })
      const split = await createSplit(ctx, merchant, { name: "s", recipients: [] }, recipients)
      return await createPaywall(ctx, merchant, { name: "p", price: "5", splitId: split.id })
    })
  const deposits = await db.selectFrom("deposits").selectAll().orderBy("id").execute()
  stage.deposits.push(...deposits.map(deposit => deposit.address))
  for (let start = 0; start < deposits.length; start += 100) {
    const part = deposits.slice(start, start + 100)
    const paid = await payAll(
      stage.anvil,
      stage.token,
      part.map(deposit => deposit.address),
    )
    const block = await stage.anvil.client.getBlock()
    const rows = part.map((deposit, i) => ({
      chain_id: network.chainId,
      tx_hash: paid[i]?.txHash as Hash,
      token: stage.token,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: paid[i]?.from.toLowerCase() as Address,
      value: PAYMENT,
      block_number: block.number,
      block_hash: block.hash as Hash,
      log_index: i,
      block_time: now,
      state: "confirmed" as const,
      run_at: now,
      created_at: now,
    }))
    await db.insertInto("transfers").values(rows).execute()
    const submissions = part.map((deposit, i) => ({
      resource_id: deposit.resource_id,
      by_sender: true,
      chain_id: network.chainId,
      tx_hash: paid[i]?.txHash as Hash,
      address: paid[i]?.from.toLowerCase() as Address,
      status: "verifying" as const,
      message: "",
      submitted_at: now,
      updated_at: now,
    }))
    await db.insertInto("submissions").values(submissions).execute()
  }
  while ((await settleDue(ctx, network)) > 0);
  const waiting = await db.selectFrom("payments").selectAll().where("status", "=", "open").orderBy("id").execute()
  for (const [i, { id, payer, amount }] of waiting.entries()) {
    const address = `0xbb${i.toString(16).padStart(38, "0")}` as Address
    const clear = new Map([payer, address].map(each => [each, "clear"] as const))
    await inTransaction(ctx, ctx => returnPayment(ctx, merchant, id, { address, confirm: false }, clear))
    stage.owed.set(address, amount)
  }
}

/** Repeats something until it is over; a failure is part of the play. */
async function play(signal: AbortSignal, act: () => Promise<void>): Promise<void> {
  while (!signal.aborted) await act().catch(() => {})
}

/** What a signer does with each request, and a count of it. */
function misbehaving(rates: SignerRates, random: () => number, report: Report): RemoteSigners["fault"] {
  return async () => {
    let left = random()
    const fault = (Object.keys(rates) as (keyof SignerRates)[]).find(each => {
      left -= rates[each] ?? 0
      return left < 0
    })
    if (!fault) return undefined
    report.signer[fault] = (report.signer[fault] ?? 0) + 1
    if (fault !== "late") return fault
    await sleep(random() * LATE_MS)
    return undefined
  }
}

/** A block now and then; sometimes some are displaced, and the transactions in the pool are lost. */
async function mineAndReorg(stage: Stage, options: ChaosOptions, random: () => number, report: Report): Promise<void> {
  const { client } = stage.anvil
  await sleep(BLOCK_MS)
  await client.mine({ blocks: 1 })
  if (!options.reorgs) return
  if (random() < 0.12) {
    const depth = 1 + Math.floor(random() * 4)
    await client.reorg(depth)
    report.reorgs++
  }
  if (random() < 0.06) {
    await client.dropAllTransactions()
    report.dropped++
  }
}

/**
 * Whoever works does so as if its lease had run out: two at once must do no harm. The books are due every third time, after
 * some three blocks: a comparison for each block found nothing more, and took a tenth of the test's CPU.
 */
async function takeLeases({ database }: Stage): Promise<void> {
  for (const check of [false, false, true]) {
    await sleep(BLOCK_MS)
    await sql`update wallets set lease_until = clock_timestamp() - interval '1 second'
      ${check ? sql`, check_at = null` : sql``}`.execute(database.db)
  }
}

/** The reconciliation, again and again, through the same endpoints: nothing of all this may halt a wallet. */
async function keepReconciling(stage: Stage, report: Report): Promise<void> {
  const [honest] = stage.ctx.chain.networks
  if (!honest) throw new Error("no network")
  const endpoints = stage.proxies.map(proxy => newEndpoint(honest.name, proxy.url(0)))
  await sleep(1_000)
  await stage.ctx.db.deleteFrom("reconciliations").execute()
  await reconcileRound(stage.ctx, { ...honest, endpoints }, stage.wallet)
  report.reconciliations++
}

/** One worker after another in the same place, each with its own end, until all ends have been met. */
async function keepWorking(
  stage: Stage,
  options: ChaosOptions,
  random: () => number,
  report: Report,
  place: number,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const doom = nextDoom(options, report, stage)
    const nth = 1 + Math.floor(random() * 4)
    const inside = doom !== undefined && !["before send", "after send", "at random"].includes(doom)
    const worker: WorkerOptions = {
      databaseUrl: stage.databaseUrl,
      network: { ...stage.network, rpcUrls: stage.proxies.map(proxy => proxy.url(place)) },
      key: stage.key,
      signer: stage.signers?.url,
      mutant: options.mutant,
      killAt: inside ? { point: doom as KillPoint, nth } : undefined,
    }
    const child = spawn(process.execPath, ["server/test/chaos/payout-worker.ts", JSON.stringify(worker)], {
      cwd: root,
      env: plainEnv(),
      stdio: ["ignore", "pipe", "inherit"],
    })
    stage.children.set(place, { child, doom, nth })
    const ended = new Promise<NodeJS.Signals | null>(resolve => child.once("exit", (_, by) => resolve(by)))
    const up = new Promise<void>(resolve => child.stdout?.once("data", () => resolve()))
    const stop = () => void child.kill("SIGTERM")
    signal.addEventListener("abort", stop, { once: true })
    if (doom === "at random") {
      await Promise.race([up, ended])
      await Promise.race([sleep(50 + random() * 1_500), ended])
      child.kill("SIGKILL")
    }
    const by = await ended
    signal.removeEventListener("abort", stop)
    if (by === "SIGKILL" && doom) report.kills[doom]++
    if (by === "SIGKILL") options.say?.(`worker ${place} ended ${doom}`)
    stage.children.delete(place)
  }
}

/**
 * The way to end that was met the least, counting the workers that wait for theirs. Every worker has one until all were
 * met: otherwise the others could do all the work that the last one needs.
 */
function nextDoom({ killsOfEach }: ChaosOptions, report: Report, stage: Stage): Doom | undefined {
  const met = (doom: Doom) =>
    report.kills[doom] + [...stage.children.values()].filter(playing => playing.doom === doom).length
  const [least] = dooms.filter(doom => report.kills[doom] < killsOfEach).sort((a, b) => met(a) - met(b))
  return least
}

/** Whether all has ended. Half of the payouts wait, so that there is work until every way to end a worker was met. */
async function isOver(stage: Stage, options: ChaosOptions, report: Report): Promise<boolean> {
  const { db } = stage.database
  const { rows } = await sql<{ open: number; due: number }>`
    select count(*)::int as open, (count(*) filter (where state = 'queued' and run_at <= now()))::int as due
    from payouts where state not in ('final', 'reverted', 'cancelled')`.execute(db)
  const { open, due } = rows[0] ?? { open: 0, due: 0 }
  if (open === 0) return true
  const met = dooms.every(doom => report.kills[doom] >= options.killsOfEach)
  if (met || due < HELPING)
    await sql`update payouts set run_at = now() where id in (select id from payouts
      where state = 'queued' and run_at > now() order by id limit ${met ? options.payouts : HELPING})`.execute(db)
  options.say?.(`${open} open, ${due} due; killed ${Object.values(report.kills).reduce((sum, n) => sum + n, 0)}`)
  await sleep(250)
  return false
}

/** Whether a payout was signed with two nonces. */
async function wasCareless({ database }: Stage): Promise<boolean> {
  const { rows } = await sql`select from transaction_attempts where raw is not null
    group by payout_id having count(distinct nonce) > 1 limit 1`.execute(database.db)
  return rows.length > 0
}

/** Whether a recipient has two transfers. */
async function wasPaidTwice({ anvil: { client }, token: address, deposits, owed }: Stage): Promise<boolean> {
  const query = { address, abi: erc20Abi, eventName: "Transfer", args: { from: deposits }, fromBlock: 0n } as const
  const logs = await client.getContractEvents({ ...query, strict: true })
  const paid = logs.map(({ args }) => args.to.toLowerCase() as Address).filter(to => owed.has(to))
  return new Set(paid).size < paid.length
}

/** A generator of numbers from 0 to 1 that a seed repeats (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

/**
 * Makes the engine careless where it records that a broadcast had no clear answer: the payout gives up its nonce and is due
 * again. A trigger, since who polls for such payouts can miss all of them on a fast chain, as one run did.
 */
async function requeueOnUnknown(db: OpenDatabase["db"]): Promise<void> {
  await sql`create function requeue_unknown() returns trigger language plpgsql as $$ begin
      update payouts set state = 'queued', nonce = null, wallet = null
      where id = new.payout_id and nonce = new.nonce and state = 'assigned';
      return null;
    end $$`.execute(db)
  await sql`create trigger requeue_unknown after update of last_result on transaction_attempts for each row
    when (new.last_result = 'unknown') execute function requeue_unknown()`.execute(db)
}
