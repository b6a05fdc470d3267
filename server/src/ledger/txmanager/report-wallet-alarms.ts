/**
 * The alarms of a wallet. The alarms are stored in the wallet's row, so that any process can report them, and each
 * start and end is logged once. `docs/operators/alarms.md` says what to do about each alarm.
 */
import { sql } from "kysely"
import { firstFees, type Market } from "../../platform/chain/fees.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import { RELEASE_GAS } from "../../platform/chain/release-call.ts"
import type { WalletState } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { LaneName } from "../../platform/db/payout-kinds.ts"
import type { Row, StandingAlarm } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { payoutAlarms, standingAlarms, walletGas, walletHalted, walletPayouts } from "../../platform/metrics.ts"
import { isTotalSpent } from "./check-total-budget.ts"
import { type InFlight, inFlight } from "./count-in-flight.ts"
import type { Lane } from "./lane.ts"

/** The gas of a typical payout. The first release of a deposit costs the most. */
const USUAL_GAS = 118_000n
/** The alarm starts when the wallet has gas for fewer typical payouts than this, early enough to send more ether. */
const ENOUGH_PAYOUTS = 100n
/**
 * When a payout in flight counts as stuck. Usually a payout is mined within seconds after sending, or replaced at a
 * higher fee after half a minute.
 */
const STUCK_MS = 15 * 60_000
const GWEI = 1_000_000_000n

const words: Record<StandingAlarm, string> = {
  low_gas: "has too little ether for gas, so payouts wait",
  gas_warning: `has gas for fewer than ${ENOUGH_PAYOUTS} payouts`,
  fee_cap: "can't pay the network's fee, which is above PAYOUT_MAX_FEE, so payouts wait",
  rpc_unavailable: "can't be observed: the endpoints don't report its nonce, its balance and the fees, so payouts wait",
  gas_total:
    "and the other wallets have spent GAS_BUDGET_TOTAL of the last 24 hours, so payouts wait; or relays have spent their half of that budget, so no relay is accepted",
  transfer: "has a payout that was mined without its transfer: a person must investigate",
  stuck:
    "or an earlier wallet of its lane has a payout that is still not in a block after 15 minutes: `sluice wallet show` shows what the endpoints answer, and docs/operators/alarms.md says what to do",
  given_up:
    "has payouts that failed on chain five times and are no longer retried automatically: `sluice wallet held` lists them, and `sluice wallet retry` retries one",
  unswept:
    "can't sweep payments that were due a day ago, because it is not certain that their money is there: the log names them, and docs/operators/alarms.md says what to do",
  signer:
    "has waited for a signature for a minute, so payouts wait, or no authorization is accepted: the log says what its signer answers, or who must sign, and docs/operators/alarms.md says what to do",
}
const standing = Object.keys(words) as StandingAlarm[]

/**
 * Determines the wallet's alarms and stores them. Logs and counts the alarms that started or ended since the last call.
 */
export async function reportAlarms(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  state: WalletState,
): Promise<void> {
  const { market, balance, dataFee } = state
  const fees = market && firstFees(market, ctx.settings.payoutMaxFee)
  const since = new Date(ctx.now().getTime() - STUCK_MS)
  const [totalSpent, flying, isEarlierStuck, transfer, own] = await Promise.all([
    fees !== undefined && isTotalSpent(ctx, RELEASE_GAS * fees.maxFee + dataFee, lane.usualKind),
    inFlight(ctx, wallet),
    earlierStuck(ctx, lane, wallet, since),
    missesTransfer(ctx, wallet),
    lane.alarms(ctx, wallet),
  ])
  const isStuck = (flying.since !== null && flying.since < since) || isEarlierStuck
  const reported = alarmsOf(state, { ...flying, isStuck }, totalSpent, ctx.settings.payoutMaxFee, wallet.alarms)
  const byRows: Partial<Record<StandingAlarm, boolean>> = {
    ...Object.fromEntries(own.map(({ reason, isOn }) => [reason, isOn])),
    transfer,
    // A halted wallet signs nothing, and has its own alarm.
    signer: flying.isUnsignedLong && wallet.status === "active",
  }
  const alarms = standing.filter(each => byRows[each] ?? reported.includes(each))
  const facts = { network: lane.chain.name, wallet: lane.name, balance, ...market }
  if (balance !== undefined) walletGas.set(labels(lane.chain, wallet), integer(balance / GWEI))
  if (market && balance !== undefined)
    walletPayouts.set(labels(lane.chain, wallet), integer(balance / usualCost(market, dataFee)))
  showWallet(lane.chain, { ...wallet, alarms })
  if (alarms.join() === wallet.alarms.join()) return
  // Only the process that changes the row logs the change, because another process may have taken over the lease
  // meanwhile.
  const now = sqlArray("text", alarms)
  const { rows } = await sql<{ alarms: StandingAlarm[] }>`
    with before as (select id, alarms from wallets where id = ${wallet.id} for no key update)
    update wallets w set alarms = ${now} from before
    where w.id = before.id and before.alarms is distinct from ${now} returning before.alarms`.execute(ctx.db)
  const [before] = rows
  if (!before) return
  for (const reason of alarms.filter(each => !before.alarms.includes(each))) {
    payoutAlarms.inc({ ...labels(lane.chain, wallet), reason })
    const more = own.find(each => each.reason === reason)?.facts
    ctx.log.error({ ...facts, ...more, reason }, `the ${facts.wallet} wallet ${words[reason]}`)
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
 * Whether an earlier wallet of the lane has had a transaction in flight since before `since`. An earlier wallet has no
 * alarms of its own.
 */
async function earlierStuck(ctx: Context, { served }: Lane, wallet: Row<"wallets">, since: Date): Promise<boolean> {
  const rows = ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", wallet.chain_id)
    .where("lane", "=", wallet.lane)
    .where("wallet", "<>", wallet.address)
    .where("state", "=", "assigned")
    .where("updated_at", "<", since)
    .where(served)
    .limit(1)
  return (await rows.executeTakeFirst()) !== undefined
}

/**
 * Whether a wallet's balance (in wei) is too low for the most expensive next payout (`low_gas`), or for 100 typical
 * payouts (`gas_warning`). `cap` is the highest gas price, and `flying` is what transactions in flight may still cost.
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

/** Returns a wallet's alarm as a sentence without private facts. */
export const walletAlarm = (lane: LaneName, alarm: StandingAlarm): string => `the ${lane} wallet ${words[alarm]}`

/**
 * Returns the alarms that depend on what endpoints report. If endpoints report nothing, these alarms stay unchanged.
 */
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

/** Returns the cost of a typical payout at the current price, in wei. */
export const usualCost = ({ baseFee, tip }: Market, dataFee: bigint): bigint =>
  // One wei is added because the balance is divided by this cost, and a chain may have no fees.
  USUAL_GAS * (baseFee + tip) + dataFee + 1n

/**
 * Sets a wallet's metrics from its row. Every process does this, because another process may have observed the wallet.
 */
export function showWallet({ name }: Pick<ReachableChain, "name">, wallet: Row<"wallets">): void {
  walletHalted.set(labels({ name }, wallet), wallet.status === "halted" ? 1 : 0)
  for (const reason of standing)
    standingAlarms.set({ ...labels({ name }, wallet), reason }, wallet.alarms.includes(reason) ? 1 : 0)
}

const labels = ({ name }: Pick<ReachableChain, "name">, { lane }: Row<"wallets">) => ({ network: name, wallet: lane })

const integer = (n: bigint): number => Number.parseInt(n.toString(), 10)
