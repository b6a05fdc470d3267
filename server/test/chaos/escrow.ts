/**
 * The chaos that escrows must outlive: two API processes and two workers, each ended by SIGKILL at each step between a request and the
 * event about it, while blocks are displaced, one of three endpoints lies, leases run out, and the clock passes every end.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import { reconcileRound } from "../../src/ledger/reconciliation/reconcile.ts"
import { newEndpoint } from "../../src/platform/chain/endpoints.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import { randomOf } from "./chaos.ts"
import { beCareless, carelessStories, tamperWith, waitCareless } from "./escrow-careless.ts"
import {
  allStories,
  type Deal,
  keepApproving,
  keepNudging,
  keepSeeing,
  type Play,
  playDeals,
  playWave,
  type Story,
} from "./escrow-play.ts"
import { apiPoints, sendPoints, workerPoints } from "./escrow-points.ts"
import {
  type Dooms,
  FINAL_DEPTH,
  isEnough,
  keepPlaying,
  type Stage,
  setStage,
  signedBy,
  unmetPoints,
} from "./escrow-stage.ts"
import { escrowViolations } from "./escrow-verify.ts"

const BLOCK_MS = 150
const LEASE_MS = 200
const RECONCILE_MS = 2_000
/** Blocks that wait until a call that is to be displaced has counted. */
const MAX_HELD = 100
const ELSEWHERE = `0x${"e1".repeat(20)}` as Address

/** Every point at which a process can be ended. */
export const allPoints = [...apiPoints, ...workerPoints, ...sendPoints]

export interface EscrowChaosOptions extends Dooms {
  postgresUrl: string
  /** Waves of checkouts, one of each story; more come, up to `maxWaves`, until enough ways of being ended were met. Without more they need not be. */
  waves: number
  maxWaves: number
  stories?: readonly Story[]
  reorgs: boolean
  /** Whether the service is a careless one, which is to be caught. */
  mutant?: boolean
  /** Whether its rows are altered afterwards, as a careless service would leave them, and checked again: what is found is in `caught`. */
  tamper?: boolean
  seed: number
  limitMs: number
  say?: (text: string) => void
}

/** What came of it. */
interface EscrowReport {
  violations: string[]
  caught: string[]
  kills: Record<string, number>
  checkouts: number
  reorgs: number
  dropped: number
  reconciliations: number
  ms: number
}

/** Sets everything up, lets it happen, and reports what did not hold. */
export async function runEscrowChaos(options: EscrowChaosOptions): Promise<EscrowReport> {
  const startedAt = performance.now()
  const random = randomOf(options.seed)
  // What is careless must be caught by what it does, and not be kept from it.
  const stage = await setStage(options.postgresUrl, random, options.mutant === true)
  if (options.mutant) await beCareless(stage.rig.service.ctx.db)
  const report: EscrowReport = {
    violations: [],
    caught: [],
    kills: stage.kills,
    checkouts: 0,
    reorgs: 0,
    dropped: 0,
    reconciliations: 0,
    ms: 0,
  }
  const over = new AbortController()
  const limit = setTimeout(() => over.abort(), options.limitMs)
  const say = options.say ?? (() => {})
  const play: Play = { stage, deals: [], seen: new Map(), random, calm: false, nudgedTo: 0, signal: over.signal, say }
  try {
    const playing = begin(play, options, report)
    try {
      if (options.mutant) await waitCareless(play, await playDeals(play, options.stories ?? carelessStories))
      else
        for (let n = 0; n < options.waves || (n < options.maxWaves && !isEnough(stage, options)); n++) {
          await playWave(play, options.stories ?? allStories)
          say(`wave ${n + 1}: ${JSON.stringify(report)}`)
        }
    } catch (error) {
      report.violations.push(`jammed: ${(error as Error).message}`)
    }
    over.abort()
    for (const { child } of stage.playing.values()) child.kill("SIGKILL")
    await Promise.all(playing)
    if (options.maxWaves > options.waves && !isEnough(stage, options))
      report.violations.push(`not every kill was met: ${unmetPoints(stage, options).join(", ")}`)
    report.violations.push(...stage.errors, ...(await escrowViolations(stage, play.deals)))
    if (options.tamper) {
      await tamperWith(stage.rig.service.ctx.db, play.deals)
      report.caught = await escrowViolations(stage, play.deals)
    }
    report.checkouts = play.deals.length
    report.ms = Math.round(performance.now() - startedAt)
    return report
  } finally {
    clearTimeout(limit)
    over.abort()
    await stage.stop()
  }
}

/** Starts all that goes on meanwhile. */
function begin(play: Play, options: EscrowChaosOptions, report: EscrowReport): Promise<void>[] {
  const { stage, signal, say } = play
  const again = async (act: () => Promise<void>) => {
    while (!signal.aborted) await act().catch(() => {})
  }
  return [
    again(() => mineAndReorg(play, options, report)),
    again(() => takeLeases(stage)),
    again(() => keepReconciling(stage, report)),
    keepSeeing(play),
    keepNudging(play),
    ...stage.merchants.map((_, place) => keepApproving(play, place)),
    ...(["api", "api", "worker", "worker"] as const).map((role, place) =>
      keepPlaying(stage, role, place, options, { signal, say }),
    ),
  ]
}

/** A block now and then, with the time of the one clock; sometimes some are displaced, and the transactions in the pool are lost. */
async function mineAndReorg(play: Play, { reorgs }: EscrowChaosOptions, report: EscrowReport): Promise<void> {
  const { stage, random } = play
  const { client } = stage.rig.anvil
  await sleep(BLOCK_MS)
  const now = BigInt(Math.floor(stage.rig.service.ctx.now().getTime() / 1_000))
  await client.setNextBlockTimestamp({ timestamp: now }).catch(() => {})
  await client.mine({ blocks: 1 })
  if (!reorgs || play.calm) return
  if (await strike(play)) {
    report.reorgs++
  } else if (random() < 0.08) {
    const depth = 1 + Math.floor(random() * (random() < 0.2 ? FINAL_DEPTH - 2 : 3))
    await client.reorg(depth)
    report.reorgs++
  }
  if (random() < 0.04) {
    await client.dropAllTransactions()
    report.dropped++
  }
}

/** The calls that are displaced for good, by the stories in which they are. */
const strikes: Partial<Record<Story, "reserve" | "refund">> = { moved: "reserve", gone: "reserve", withdrawn: "refund" }

/** A reorg of a call that can't come back: its payer, or its merchant, does something else in the new blocks. */
async function strike(play: Play): Promise<boolean> {
  for (const deal of play.deals.filter(({ story, struck }) => !struck && strikes[story] !== undefined)) {
    const depth = await depthOf(play, deal, strikes[deal.story] ?? "reserve")
    if (depth === undefined) continue
    await displace(play, deal, depth)
    return true
  }
  return false
}

/** How many blocks have to go for a call of a deal to go, once it counts; undefined where it is not mined, or is final. */
async function depthOf(play: Play, deal: Deal, kind: "reserve" | "refund"): Promise<bigint | undefined> {
  const { rig } = play.stage
  for (let n = 0; n < MAX_HELD && !play.signal.aborted; n++) {
    const row = await rig.service.ctx.db
      .selectFrom("payouts")
      .select(["state", "block_number"])
      .where("escrow_id", "=", deal.id)
      .where("kind", "=", kind)
      .where("state", "in", ["assigned", "mined"])
      .executeTakeFirst()
    const head = await rig.anvil.client.getBlockNumber()
    const counts = kind === "reserve" ? play.seen.get(deal.id)?.authorized : play.seen.get(deal.id)?.refunded
    if (row?.state === "mined" && (counts ?? 0n) > 0n) {
      const depth = head - (row.block_number ?? 0n) + 1n
      return depth < BigInt(FINAL_DEPTH) ? depth : undefined
    }
    // No other block comes before it counts, so that it is not final by then.
    if (row?.state !== "mined") return undefined
    await sleep(50)
  }
  return undefined
}

async function displace(play: Play, deal: Deal, depth: bigint): Promise<void> {
  const { stage } = play
  const { rig } = stage
  const { client } = rig.anvil
  const fork = (await client.getBlockNumber()) - depth
  const [account, data] =
    strikes[deal.story] === "reserve"
      ? [deal.buyer, encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [ELSEWHERE, deal.amount] })]
      : [
          deal.merchant.wallet,
          encodeFunctionData({
            abi: erc20Abi,
            functionName: "approve",
            args: [rig.network.escrow?.refundCollector as Address, 0n],
          }),
        ]
  const raw = await signedBy(stage, account, { to: rig.token, data }, fork)
  deal.struck = true
  await client.request({ method: "anvil_reorg", params: [Number(depth), [[raw, 0]]] } as never)
  play.say(`${deal.story}: ${depth} blocks are displaced`)
}

/** Whoever works does so as if its lease had run out: two at once must do no harm. */
async function takeLeases({ rig }: Stage): Promise<void> {
  await sleep(LEASE_MS)
  const { db } = rig.service.ctx
  const past = sql<Date>`clock_timestamp() - interval '1 second'`
  await db.updateTable("wallets").set({ lease_until: past }).where("lease_until", "is not", null).execute()
  await db.updateTable("cursors").set({ lease_until: past }).where("lease_until", "is not", null).execute()
  await db.updateTable("idempotency_keys").set({ lease_until: past }).where("claim_id", "is not", null).execute()
}

/** The reconciliation, again and again, through the same endpoints: nothing of all this may halt a wallet. */
async function keepReconciling(stage: Stage, report: EscrowReport): Promise<void> {
  const { ctx } = stage.rig.service
  const { network, signer } = stage.rig
  await sleep(RECONCILE_MS)
  await ctx.db.deleteFrom("reconciliations").execute()
  const endpoints = stage.proxies.map(proxy => newEndpoint(network.name, proxy.url(9)))
  await reconcileRound(ctx, { ...network, endpoints }, signer.address)
  report.reconciliations++
}
