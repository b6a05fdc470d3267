/**
 * The alarms that only the payout lane raises: late sweeps, failed payouts, and payouts that wait for a key or a
 * process.
 */
import { sql } from "kysely"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { LaneAlarm } from "../txmanager/lane.ts"
import { NEVER } from "../txmanager/recheck.ts"
import type { WaitingAlarm } from "../txmanager/report-alarms.ts"

/** A sweep is due within a day, so something prevents it if a payment is unswept after two days. */
const UNSWEPT_MS = 2 * 86_400_000
/** The longest wait before the service retries a sweep that could take nothing. */
const SWEEP_AGAIN_MS = 3_600_000
/** The most payments that the log names. */
const PAYMENTS_NAMED = 10

/** Returns the alarms of a payout wallet that depend on rows in the database. */
export async function laneAlarms(
  ctx: Context,
  network: Pick<Network, "depositFactory">,
  wallet: Row<"wallets">,
): Promise<LaneAlarm[]> {
  const [payments, isGivenUp] = await Promise.all([unsweptPayments(ctx, wallet), hasParked(ctx, network, wallet)])
  return [
    { reason: "given_up", isOn: isGivenUp },
    { reason: "unswept", isOn: payments.length > 0, facts: { payments } },
  ]
}

/** Whether a payout from the wallet's own factory is held until a person retries it. */
async function hasParked(
  ctx: Context,
  { depositFactory }: Pick<Network, "depositFactory">,
  wallet: Row<"wallets">,
): Promise<boolean> {
  const rows = ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", wallet.chain_id)
    .where("lane", "=", wallet.lane)
    .where("state", "=", "held")
    .where("held_reason", "=", "reverted")
    .where("run_at", ">=", NEVER)
    .where("to_address", "=", depositFactory)
    .limit(1)
  return (await rows.executeTakeFirst()) !== undefined
}

/**
 * Returns some granted payments that no sweep could take: only one endpoint reports them, a reorg is moving them, or
 * their deposit's book promises more than it holds. A sweep that recently failed or was cancelled is retried
 * automatically, so it raises no alarm.
 */
async function unsweptPayments(ctx: Context, { chain_id: chainId }: Row<"wallets">): Promise<string[]> {
  const now = ctx.now().getTime()
  const since = new Date(now - UNSWEPT_MS)
  const { rows } = await sql<{ id: string }>`select p.id from payments p
    where p.chain_id = ${chainId} and p.sweep_at <= ${new Date(now + SWEEP_AGAIN_MS)} and p.status = 'granted'
      and p.updated_at <= ${since} and not exists (select from claims c join sweep_parts s on s.transfer_id = c.transfer_id
        join payouts i on i.id = s.payout_id where c.payment_id = p.id and i.updated_at > ${since})
    order by p.sweep_at, p.id limit ${PAYMENTS_NAMED}`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/** The alarm for a served network without a payout key. */
export const NO_KEY =
  "the service has no payout key, so no money can leave its deposits: set PAYOUT_PRIVATE_KEY, PAYOUT_KEYSTORE or PAYOUT_SIGNER, and restart the service"
/** The alarm for payouts that need a process for their factory. */
export const UNSERVED =
  "payouts have waited for an hour at receiving addresses of a deposit factory that no process serves: docs/operators/operations.md (Keys) explains how to run a process for another factory, and docs/operators/alarms.md (unserved) says what else you can do"
const UNSERVED_MS = 3_600_000

/** Returns the networks where payouts are due and no process has the key. */
async function withoutKey(ctx: Context): Promise<Set<number>> {
  if (ctx.settings.payoutSigner || ctx.settings.payoutWallet) return new Set()
  const { rows } = await sql<{ chain_id: number }>`
    select chain_id from unnest(${sql.val(ctx.chain.networks.map(each => each.chainId))}::int[]) as served (chain_id)
    where exists (select from payouts i where i.chain_id = served.chain_id and i.lane = 'payout'
        and i.state in ('queued', 'held'))
      or exists (select from payments p where p.chain_id = served.chain_id and p.sweep_at is not null)`.execute(ctx.db)
  return new Set(rows.map(row => row.chain_id))
}

/**
 * Returns the networks where payouts from a factory that this process does not serve have been due for an hour. If the
 * process that serves that factory has a problem, that process raises its own alarm. If there is no such process, only
 * this alarm shows the problem.
 */
async function unserved(ctx: Context): Promise<Set<number>> {
  const { networks } = ctx.chain
  const since = new Date(ctx.now().getTime() - UNSERVED_MS)
  const { rows } = await sql<{ chain_id: number }>`
    select chain_id from unnest(${sql.val(networks.map(each => each.chainId))}::int[],
        ${sqlArray(
          "text",
          networks.map(each => each.depositFactory),
        )}) as served (chain_id, factory)
    where exists (select from payouts i where i.chain_id = served.chain_id and i.lane = 'payout' and i.state = 'queued'
      and i.run_at < ${since} and i.created_at < ${since} and i.to_address <> served.factory and i.kind <> 'anchor')`.execute(
    ctx.db,
  )
  return new Set(rows.map(row => row.chain_id))
}

/** The alarms for payouts that need a key or another process. */
export const payoutAlarms: readonly WaitingAlarm[] = [
  { reason: "no_key", wallet: "payout", words: NO_KEY, chainsWith: withoutKey },
  { reason: "unserved", wallet: "payout", words: UNSERVED, chainsWith: unserved },
]
