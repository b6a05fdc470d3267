/** The alarms of all wallets and lanes together, including networks where no round runs that could raise an alarm. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import type { LaneName } from "../../platform/db/payout-kinds.ts"
import type { HeldReason } from "../../platform/db/schema.ts"
import { payoutAlarms, standingAlarms } from "../../platform/metrics.ts"
import { walletAlarm } from "./report-wallet-alarms.ts"

/** A lane's alarm on networks where no wallet works, or that no wallet's round notices. */
export interface WaitingAlarm {
  reason: string
  wallet: LaneName
  /** The alarm in words that may be public, without private facts. */
  words: string
  /** Returns the ids of the chains where the alarm is on. */
  chainsWith(ctx: Context): Promise<ReadonlySet<number>>
}

const halted: Record<LaneName, string> = {
  payout: "payouts wait, and nothing can be sold on this network, until you run `sluice wallet resume`",
  relay: "no authorization is executed until you run `sluice wallet resume`",
  storage: "receipts are stored only in DATA_DIR until you run `sluice wallet resume`",
}
/** The active alarms, for each set of networks that a process serves. */
const on = new WeakMap<Context["chain"], Set<string>>()

/** Reports these alarms, and logs each of them once. */
export async function reportWaiting(ctx: Context, alarms: readonly WaitingAlarm[]): Promise<void> {
  for (const alarm of alarms) report(ctx, alarm, await alarm.chainsWith(ctx))
}

function report(ctx: Context, { reason, wallet, words }: WaitingAlarm, chains: ReadonlySet<number>): void {
  const reported = on.get(ctx.chain) ?? new Set<string>()
  on.set(ctx.chain, reported)
  for (const { name, chainId } of ctx.chain.networks) {
    const labels = { network: name, wallet, reason }
    const key = `${chainId} ${reason}`
    standingAlarms.set(labels, chains.has(chainId) ? 1 : 0)
    if (!chains.has(chainId)) reported.delete(key)
    else if (!reported.has(key)) {
      reported.add(key)
      payoutAlarms.inc(labels)
      ctx.log.error({ network: name, reason }, words)
    }
  }
}

/**
 * Returns these alarms and those of all wallets, in words that may be public, without addresses, amounts or merchants.
 */
export async function alarmMessages(ctx: Context, alarms: readonly WaitingAlarm[]): Promise<string[]> {
  const { networks } = ctx.chain
  const ours = ctx.settings.serviceWallets
  const wallets = await ctx.db.selectFrom("wallets").selectAll().orderBy("id").execute()
  const waiting: { words: string; chains: ReadonlySet<number> }[] = []
  for (const { words, chainsWith } of alarms) waiting.push({ words, chains: await chainsWith(ctx) })
  const held = await sql<{ chain_id: number; held_reason: HeldReason; n: number }>`
    select chain_id, held_reason, count(*)::int as n from payouts where state = 'held'
    group by 1, 2 order by 1, 2`.execute(ctx.db)
  const { zerog } = ctx.settings.receipts
  const chains = [...networks, ...(zerog ? [{ name: "0g", chainId: zerog.chainId }] : [])]
  return chains.flatMap(({ name, chainId }) => {
    const reasons = held.rows.filter(row => row.chain_id === chainId)
    const total = reasons.reduce((sum, { n }) => sum + n, 0)
    const list = reasons.map(({ held_reason, n }) => `${n} ${held_reason}`).join(", ")
    return [
      ...waiting.flatMap(({ words, chains }) => (chains.has(chainId) ? [`${name}: ${words}`] : [])),
      // A wallet that is no longer used keeps its row, so only the wallets in use are reported.
      ...wallets
        .filter(wallet => wallet.chain_id === chainId && (ours.length === 0 || ours.includes(wallet.address)))
        .flatMap(wallet => [
          ...(wallet.status === "halted"
            ? [`${name}: the ${wallet.lane} wallet is halted: ${halted[wallet.lane]}`]
            : []),
          ...wallet.alarms.map(each => `${name}: ${walletAlarm(wallet.lane, each)}`),
        ]),
      ...(total === 0 ? [] : [`${name}: payouts held: ${total} (${list})`]),
    ]
  })
}
