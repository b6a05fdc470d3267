/** Reads the queue of a lane, for the lane's rounds and metrics. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import type { HeldReason } from "../../platform/db/schema.ts"
import { heldPayouts, oldestQueued, openPayouts } from "../../platform/metrics.ts"
import type { Lane } from "./lane.ts"

/** All reasons why payouts are held. */
export const heldReasons: HeldReason[] = [
  "short",
  "sanctions",
  "simulation",
  "low_gas",
  "reverted",
  "gas_budget",
  "allowance",
  "balance",
]

interface QueueCount {
  state: string
  held_reason: HeldReason | null
  n: number
  /** When the first payout in this state is due. */
  next: Date
  /** When the oldest payout in this state was created. */
  oldest: Date
}

/** Counts a lane's unfinished payouts on its network, by state and reason. */
export async function waitingPayouts(ctx: Context, { chain, name }: Lane): Promise<QueueCount[]> {
  const { rows } = await sql<QueueCount>`
    select state, held_reason, count(*)::int as n, min(run_at) as next, min(created_at) as oldest from payouts
    where chain_id = ${chain.chainId} and lane = ${name} and state in ('queued', 'held', 'assigned', 'mined')
    group by state, held_reason`.execute(ctx.db)
  return rows
}

/** Sets the metrics of the queue. */
export function showQueue(ctx: Context, lane: Lane, rows: readonly QueueCount[]): void {
  const labels = { network: lane.chain.name, wallet: lane.name }
  const count = (which: (row: QueueCount) => boolean) => rows.filter(which).reduce((sum, { n }) => sum + n, 0)
  for (const state of ["queued", "held", "assigned", "mined"])
    openPayouts.set(
      { ...labels, state },
      count(row => row.state === state),
    )
  for (const reason of heldReasons)
    heldPayouts.set(
      { ...labels, reason },
      count(row => row.held_reason === reason),
    )
  const queued = rows.find(row => row.state === "queued")
  const ageMs = queued ? ctx.now().getTime() - queued.oldest.getTime() : 0
  oldestQueued.set(labels, Math.max(0, ageMs / 1_000))
}
