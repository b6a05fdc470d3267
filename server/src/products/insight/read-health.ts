/** The health of the service as a merchant sees it: networks, due payouts and deliveries, and problems in words. */
import { sql } from "kysely"
import { isOverdue } from "../../ledger/scanner/watch-scan-lag.ts"
import { networkFacts } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { lateChanges } from "./find-held-changes.ts"

interface Waiting {
  chain_id: number
  state: "queued" | "held" | "assigned"
  count: number
  oldest: Date
}

/** The most waiting rows that are counted. */
const MAX_COUNTED = 1_000

/** Reads the health. What concerns an operator is only in `/readyz`. */
export async function readHealth(ctx: TxContext, merchantId: string) {
  const { db } = ctx
  const [cursors, wallets, waiting, deliveries, failing, late] = await Promise.all([
    db.selectFrom("cursors").selectAll().execute(),
    db.selectFrom("wallets").select(["chain_id", "lane", "status"]).execute(),
    waitingPayouts(ctx, merchantId),
    db
      .selectFrom(
        db
          .selectFrom("deliveries")
          .select("run_at")
          .where("merchant_id", "=", merchantId)
          .where("status", "=", "pending")
          .limit(MAX_COUNTED)
          .as("d"),
      )
      .select([sql<number>`count(*)::int`.as("count"), sql<Date | null>`min(run_at)`.as("oldest")])
      .executeTakeFirstOrThrow(),
    db
      .selectFrom("webhooks")
      .select(["url", "failing_since", "disabled_reason"])
      .where("merchant_id", "=", merchantId)
      .where("deleted_at", "is", null)
      .where(eb => eb.or([eb("failing_since", "is not", null), eb("disabled_reason", "is not", null)]))
      .limit(MAX_COUNTED)
      .execute(),
    lateChanges(ctx),
  ])
  const networks = ctx.chain.networks.map(({ name, chainId }) => {
    const cursor = cursors.find(({ chain_id }) => chain_id === chainId)
    const isHalted = wallets.some(
      wallet => wallet.chain_id === chainId && wallet.lane === "payout" && wallet.status === "halted",
    )
    return {
      chain: name,
      head: cursor ? `${cursor.block_number}` : null,
      finalized: cursor ? `${cursor.finalized_number}` : null,
      behind: cursor ? `${cursor.lag_blocks}` : null,
      readAt: cursor?.looked_at?.toISOString() ?? null,
      payments: isHalted ? ("paused" as const) : ("open" as const),
      alarms: networkAlarms(ctx, networkFacts[name].title, cursor, isHalted),
    }
  })
  const held = waiting.filter(({ state }) => state === "held").reduce((sum, { count }) => sum + count, 0)
  const endpoints = failing.map(({ url, failing_since, disabled_reason }) =>
    disabled_reason
      ? `Your endpoint ${url} was switched off because it ${disabled_reason === "gone" ? "answered that it is gone" : "failed for days"}. Fix it, and switch it on again.`
      : `Your endpoint ${url} has failed since ${failing_since?.toISOString()}. See its answers in its deliveries.`,
  )
  const holds =
    held > 0 ? [`${held} of your payouts ${held === 1 ? "is" : "are"} on hold. See the reason on each payout.`] : []
  return {
    networks,
    queue: {
      payouts: {
        queued: countOf(waiting, "queued"),
        held,
        sending: countOf(waiting, "assigned"),
        oldestAt: oldestOf(waiting),
      },
      deliveries: { pending: deliveries.count, oldestAt: deliveries.oldest?.toISOString() ?? null },
    },
    alarms: [...networks.flatMap(({ alarms }) => alarms), ...holds, ...endpoints, ...late],
  }
}

const countOf = (waiting: readonly Waiting[], state: Waiting["state"]): number =>
  waiting.filter(row => row.state === state).reduce((sum, { count }) => sum + count, 0)

const oldestOf = (waiting: readonly Waiting[]): string | null => {
  const times = waiting.map(({ oldest }) => oldest.getTime())
  return times.length === 0 ? null : new Date(Math.min(...times)).toISOString()
}

async function waitingPayouts({ db }: TxContext, merchantId: string): Promise<Waiting[]> {
  const { rows } = await sql<Waiting>`
    select chain_id, state, count(*)::int as count, min(created_at) as oldest
    from (select chain_id, state, created_at from payouts where merchant_id = ${merchantId}
        and kind = any (array['share', 'sweep', 'return', 'capture']) and state <> 'final' and state in ('queued', 'held', 'assigned')
      limit ${sql.lit(MAX_COUNTED)}) w
    group by 1, 2`.execute(db)
  return rows
}

function networkAlarms(ctx: TxContext, title: string, cursor: Row<"cursors"> | undefined, isHalted: boolean): string[] {
  const isLate = isOverdue(ctx, cursor)
  const isBehind = cursor !== undefined && cursor.lag_blocks > BigInt(ctx.settings.maxScanLag)
  return [
    ...(isLate
      ? [
          `${title} is not being read, so payments there are currently not found. No payment is lost: they are found when reading resumes.`,
        ]
      : isBehind
        ? [`${title} is being read ${cursor.lag_blocks} blocks behind, so payments there are found late.`]
        : []),
    ...(isHalted
      ? [`Payments and payouts on ${title} are paused until the operator of this service has checked its wallet.`]
      : []),
  ]
}
