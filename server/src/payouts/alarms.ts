/**
 * The alarms of a wallet. They are stored in the wallet's row, so each is logged once when it begins and once when it
 * ends, whichever process notices, and every process can report them. `docs/alarms.md` says what to do about each.
 */
import { sql } from "kysely"
import { firstFees, type Market } from "../chain/fees.ts"
import type { Network } from "../chain/networks.ts"
import { RELEASE_GAS } from "../chain/release-call.ts"
import type { WalletState } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { HeldReason, Lane, StandingAlarm } from "../db/payout-rows.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import {
  heldPayouts,
  oldestQueued,
  openPayouts,
  payoutAlarms,
  standingAlarms,
  walletGas,
  walletHalted,
  walletPayouts,
} from "../metrics.ts"
import { ESCROW_FAILED, OTHER_OPERATOR, underOtherOperator, withFailedCalls } from "./escrow-alarms.ts"
import { type InFlight, inFlight } from "./in-flight.ts"
import { NEVER } from "./insert-payout.ts"
import { isTotalSpent } from "./total-budget.ts"

/** Gas of a typical payout: the first release of a deposit takes the most. */
const USUAL_GAS = 118_000n
/** The alarm begins when the gas covers fewer typical payouts than this, while there is time to send more. */
const ENOUGH_PAYOUTS = 100n
/** A sweep is due after a day at the latest; if a payment is not swept after two days, something prevents it. */
const UNSWEPT_MS = 2 * 86_400_000
/** When a sweep that could take nothing is retried, at the latest. */
const SWEEP_AGAIN_MS = 3_600_000
/** How many payments the log names. */
const PAYMENTS_NAMED = 10
/** A payout is mined some seconds after it is sent, or replaced at a higher fee after half a minute. */
const STUCK_MS = 15 * 60_000
const GWEI = 1_000_000_000n

const words: Record<StandingAlarm, string> = {
  low_gas: "has too little for gas, and payouts wait",
  gas_warning: `has gas for fewer than ${ENOUGH_PAYOUTS} payouts`,
  fee_cap: "pays no more than PAYOUT_MAX_FEE, the network asks for more, and payouts wait",
  rpc_unavailable: "can't be observed: no endpoint reports its nonce, its gas and the fees, and payouts wait",
  gas_total:
    "has spent GAS_BUDGET_TOTAL of the last 24 hours with the others, and payouts wait; or relays spent their half of it, and none is accepted",
  transfer: "has a payout that was mined without its transfer, and a person must look",
  stuck:
    "has a payout in flight, or an earlier wallet of its lane has, that is in no block after 15 minutes: `sluice wallet show` says what endpoints answer, and docs/alarms.md what to do",
  given_up:
    "has payouts that failed on chain five times and are no longer retried: `sluice wallet held` lists them, `sluice wallet retry` retries one",
  unswept:
    "can't sweep payments that were due a day ago, as their money is not certainly there: the log names them, and docs/alarms.md says what to do",
  signer:
    "has had something without a signature for a minute: payouts wait, or no authorization is accepted; the log says what its signer answers, or who is to sign, and docs/alarms.md what to do",
}
const halted: Record<Lane, string> = {
  payout: "payouts wait, and nothing can be sold on this network, until `sluice wallet resume`",
  relay: "no authorization is carried out until `sluice wallet resume`",
}
const standing = Object.keys(words) as StandingAlarm[]
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

/** Determines the wallet's alarms, stores them, and logs and counts those that began or ended since the last call. */
export async function reportAlarms(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  state: WalletState,
): Promise<void> {
  const { market, balance, dataFee } = state
  const fees = market && firstFees(market, ctx.settings.payoutMaxFee)
  const since = new Date(ctx.now().getTime() - STUCK_MS)
  const [totalSpent, flying, isEarlierStuck, unswept, transfer, given_up] = await Promise.all([
    fees !== undefined &&
      isTotalSpent(ctx, RELEASE_GAS * fees.maxFee + dataFee, wallet.lane === "relay" ? "authorize" : "share"),
    inFlight(ctx, wallet),
    earlierStuck(ctx, network, wallet, since),
    unsweptPayments(ctx, wallet),
    missesTransfer(ctx, wallet),
    hasParked(ctx, network, wallet),
  ])
  const isStuck = (flying.since !== null && flying.since < since) || isEarlierStuck
  const reported = alarmsOf(state, { ...flying, isStuck }, totalSpent, ctx.settings.payoutMaxFee, wallet.alarms)
  const byRows: Partial<Record<StandingAlarm, boolean>> = {
    transfer,
    given_up,
    unswept: unswept.length > 0,
    // A halted wallet signs nothing, and has an alarm of its own.
    signer: flying.isUnsignedLong && wallet.status === "active",
  }
  const alarms = standing.filter(each => byRows[each] ?? reported.includes(each))
  const facts = { network: network.name, wallet: wallet.lane, balance, ...market }
  if (balance !== undefined) walletGas.set(labels(network, wallet), integer(balance / GWEI))
  if (market && balance !== undefined)
    walletPayouts.set(labels(network, wallet), integer(balance / usualCost(market, dataFee)))
  showWallet(network, { ...wallet, alarms })
  if (alarms.join() === wallet.alarms.join()) return
  // Only the process that changes the row logs it: another process may have taken over the lease meanwhile.
  const now = sqlArray("text", alarms)
  const { rows } = await sql<{ alarms: StandingAlarm[] }>`
    with before as (select id, alarms from wallets where id = ${wallet.id} for no key update)
    update wallets w set alarms = ${now} from before
    where w.id = before.id and before.alarms is distinct from ${now} returning before.alarms`.execute(ctx.db)
  const [before] = rows
  if (!before) return
  for (const reason of alarms.filter(each => !before.alarms.includes(each))) {
    payoutAlarms.inc({ ...labels(network, wallet), reason })
    const payments = reason === "unswept" ? { payments: unswept } : {}
    ctx.log.error({ ...facts, ...payments, reason }, `the ${facts.wallet} wallet ${words[reason]}`)
  }
  for (const reason of before.alarms.filter(each => !alarms.includes(each)))
    ctx.log.info({ ...facts, reason }, `ended: the ${facts.wallet} wallet ${words[reason]}`)
}

async function missesTransfer(ctx: Context, wallet: Row<"wallets">): Promise<boolean> {
  const rows = ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .where("transfer_missing_at", "is not", null)
    .where("state", "in", ["assigned", "mined"])
  return (await rows.executeTakeFirst()) !== undefined
}

/**
 * Whether an earlier wallet of the lane has had a transaction in flight since before `since`; such a wallet has no
 * alarms of its own.
 */
async function earlierStuck(
  ctx: Context,
  { depositFactory }: Network,
  wallet: Row<"wallets">,
  since: Date,
): Promise<boolean> {
  const rows = ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", wallet.chain_id)
    .where("lane", "=", wallet.lane)
    .where("wallet", "<>", wallet.address)
    .where("state", "=", "assigned")
    .where("updated_at", "<", since)
    .$if(wallet.lane === "payout", query => query.where("to_address", "=", depositFactory))
    .limit(1)
  return (await rows.executeTakeFirst()) !== undefined
}

/** Whether a payout out of the wallet's own factory is held until a person retries it. */
async function hasParked(ctx: Context, { depositFactory }: Network, wallet: Row<"wallets">): Promise<boolean> {
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
 * their deposit's book promises more than it holds. A sweep that failed or was cancelled recently is retried without
 * help, so it raises no alarm.
 */
async function unsweptPayments(ctx: Context, { lane, chain_id: chainId }: Row<"wallets">): Promise<string[]> {
  if (lane !== "payout") return []
  const now = ctx.now().getTime()
  const since = new Date(now - UNSWEPT_MS)
  const { rows } = await sql<{ id: string }>`select p.id from payments p
    where p.chain_id = ${chainId} and p.sweep_at <= ${new Date(now + SWEEP_AGAIN_MS)} and p.status = 'granted'
      and p.updated_at <= ${since} and not exists (select from claims c join sweep_parts s on s.transfer_id = c.transfer_id
        join payouts i on i.id = s.payout_id where c.payment_id = p.id and i.updated_at > ${since})
    order by p.sweep_at, p.id limit ${PAYMENTS_NAMED}`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/**
 * Whether a wallet's balance (wei) is too low for the most expensive next payout (`low_gas`), or for 100 typical ones
 * (`gas_warning`). `cap` is the highest gas price; `flying` is what transactions in flight may still cost.
 */
export function gasShortage(
  { balance, market, dataFee }: { balance: bigint; market: Market; dataFee: bigint },
  cap: bigint,
  flying: Pick<InFlight, "wei" | "parts"> = { wei: 0n, parts: 0n },
): "low_gas" | "gas_warning" | undefined {
  const most = RELEASE_GAS * (firstFees(market, cap)?.maxFee ?? cap) + dataFee
  if (balance - flying.wei - flying.parts * dataFee < most) return "low_gas"
  return balance < ENOUGH_PAYOUTS * usualCost(market, dataFee) ? "gas_warning" : undefined
}

/** Returns a wallet's alarm as a sentence that anyone may read. */
export const walletAlarm = (lane: Lane, alarm: StandingAlarm): string => `the ${lane} wallet ${words[alarm]}`

/** The alarms that endpoints report on. Where they report nothing, the alarms stay as they were. */
function alarmsOf(
  { latest, market, balance, dataFee }: WalletState,
  flying: InFlight & { isStuck: boolean },
  totalSpent: boolean,
  cap: bigint,
  before: StandingAlarm[],
): StandingAlarm[] {
  if (latest === undefined || market === undefined || balance === undefined)
    return standing.filter(each => each === "rpc_unavailable" || before.includes(each))
  const shortage = gasShortage({ balance, market, dataFee }, cap, flying)
  const facts = {
    low_gas: shortage === "low_gas",
    gas_warning: shortage === "gas_warning",
    fee_cap: !firstFees(market, cap),
    rpc_unavailable: false,
    gas_total: totalSpent,
    transfer: false,
    stuck: flying.isStuck,
    given_up: false,
    unswept: false,
    signer: false,
  }
  return standing.filter(each => facts[each])
}

/** What a typical payout costs at the current price, in wei. */
export const usualCost = ({ baseFee, tip }: Market, dataFee: bigint): bigint =>
  // One wei on a chain without fees, because the balance is divided by this.
  USUAL_GAS * (baseFee + tip) + dataFee + 1n

/** Sets the metrics of a wallet from its row. Every process does: another one may have observed the wallet. */
export function showWallet(network: Network, wallet: Row<"wallets">): void {
  walletHalted.set(labels(network, wallet), wallet.status === "halted" ? 1 : 0)
  for (const reason of standing)
    standingAlarms.set({ ...labels(network, wallet), reason }, wallet.alarms.includes(reason) ? 1 : 0)
}

const labels = (network: Network, { lane }: Row<"wallets">) => ({ network: network.name, wallet: lane })

const integer = (n: bigint): number => Number.parseInt(n.toString(), 10)

interface Waiting {
  state: string
  held_reason: HeldReason | null
  n: number
  /** When the first of them is due. */
  next: Date
  /** When the oldest of them was made. */
  oldest: Date
}

/** Counts the payouts of a network and lane that have not ended, by state and reason. */
export async function waitingPayouts(ctx: Context, network: Network, lane: Lane): Promise<Waiting[]> {
  const { rows } = await sql<Waiting>`
    select state, held_reason, count(*)::int as n, min(run_at) as next, min(created_at) as oldest from payouts
    where chain_id = ${network.chainId} and lane = ${lane} and state in ('queued', 'held', 'assigned', 'mined')
    group by state, held_reason`.execute(ctx.db)
  return rows
}

/** Sets the metrics of the queue. */
export function showQueue(ctx: Context, network: Network, wallet: Lane, rows: readonly Waiting[]): void {
  const count = (which: (row: Waiting) => boolean) => rows.filter(which).reduce((sum, { n }) => sum + n, 0)
  for (const state of ["queued", "held", "assigned", "mined"])
    openPayouts.set(
      { network: network.name, wallet, state },
      count(row => row.state === state),
    )
  for (const reason of heldReasons)
    heldPayouts.set(
      { network: network.name, wallet, reason },
      count(row => row.held_reason === reason),
    )
  const queued = rows.find(row => row.state === "queued")
  const ageMs = queued ? ctx.now().getTime() - queued.oldest.getTime() : 0
  oldestQueued.set({ network: network.name, wallet }, Math.max(0, ageMs / 1_000))
}

/** The alarm of a network that is served without a payout key. */
export const NO_KEY =
  "the service has no payout key, so no money leaves its deposits: set PAYOUT_PRIVATE_KEY, PAYOUT_KEYSTORE or PAYOUT_SIGNER, and restart"
/** The alarm for payouts that need a process that serves their factory. */
export const UNSERVED =
  "payouts have waited for an hour at receiving addresses of a deposit factory that nothing serves: docs/operations.md says how to run a process for another factory (Keys), and docs/alarms.md what else can be done"
const UNSERVED_MS = 3_600_000
const reported = new Set<string>()

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
 * Returns the networks where payouts out of a factory that this process does not serve have been due for an hour. If
 * something stops the process that serves that factory, that process raises an alarm; if there is no such process, only
 * this alarm shows it.
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
      and i.run_at < ${since} and i.created_at < ${since} and i.to_address <> served.factory)`.execute(ctx.db)
  return new Set(rows.map(row => row.chain_id))
}

/**
 * Reports networks whose payouts need a key or another process, and logs each once: no payout round runs there to
 * report them.
 */
export async function reportWaiting(ctx: Context): Promise<void> {
  report(ctx, "no_key", await withoutKey(ctx), NO_KEY)
  report(ctx, "unserved", await unserved(ctx), UNSERVED)
  report(ctx, "other_operator", await underOtherOperator(ctx), OTHER_OPERATOR)
  report(ctx, "escrow_failed", await withFailedCalls(ctx), ESCROW_FAILED)
}

type WaitingReason = "no_key" | "unserved" | "other_operator" | "escrow_failed"

function report(ctx: Context, reason: WaitingReason, networks: ReadonlySet<number>, said: string): void {
  for (const { name, chainId } of ctx.chain.networks) {
    const labels = {
      network: name,
      wallet: reason === "other_operator" || reason === "escrow_failed" ? "relay" : "payout",
      reason,
    }
    const key = `${chainId} ${reason}`
    standingAlarms.set(labels, networks.has(chainId) ? 1 : 0)
    if (!networks.has(chainId)) reported.delete(key)
    else if (!reported.has(key)) {
      reported.add(key)
      payoutAlarms.inc(labels)
      ctx.log.error({ network: name, reason }, said)
    }
  }
}

/** Returns all alarms in words that anyone may read: no address, amount or merchant. */
export async function alarmsInWords(ctx: Context): Promise<string[]> {
  const { networks } = ctx.chain
  const ours = ctx.settings.serviceWallets
  const wallets = await ctx.db.selectFrom("wallets").selectAll().orderBy("id").execute()
  const keyless = await withoutKey(ctx)
  const waiting = await unserved(ctx)
  const otherOperator = await underOtherOperator(ctx)
  const failedCalls = await withFailedCalls(ctx)
  const held = await sql<{ chain_id: number; held_reason: HeldReason; n: number }>`
    select chain_id, held_reason, count(*)::int as n from payouts where state = 'held'
    group by 1, 2 order by 1, 2`.execute(ctx.db)
  return networks.flatMap(({ name, chainId }) => {
    const reasons = held.rows.filter(row => row.chain_id === chainId)
    const total = reasons.reduce((sum, { n }) => sum + n, 0)
    const lacksKey = keyless.has(chainId) ? [`${name}: ${NO_KEY}`] : []
    const list = reasons.map(({ held_reason, n }) => `${n} ${held_reason}`).join(", ")
    return [
      ...lacksKey,
      ...(waiting.has(chainId) ? [`${name}: ${UNSERVED}`] : []),
      ...(otherOperator.has(chainId) ? [`${name}: ${OTHER_OPERATOR}`] : []),
      ...(failedCalls.has(chainId) ? [`${name}: ${ESCROW_FAILED}`] : []),
      // The row of a wallet that is no longer used stays in the table.
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
