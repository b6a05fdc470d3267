/**
 * Limits on gas in 24 hours beside each merchant's budget. `GAS_BUDGET_TOTAL` is for all merchants together: with `SIGNUP=open`
 * one person can be any number of merchants. `RELAY_CONTRACT_BUDGET` is for relays of contract wallets on each network: a
 * contract can approve in every simulation, and burn the gas of its relay when that is mined.
 */
import { type RawBuilder, sql } from "kysely"
import { CONTRACT_RELAY } from "../chain/authorizations.ts"
import { dataPartsOf } from "../chain/wallet-state.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"

const WINDOW_MS = 24 * 3_600_000
/** The key of the advisory lock; no other lock uses this number. */
const LOCK = 7_582_412

/** What is left of the totals, locked until the transaction ends. */
export interface Totals {
  /** Whether this many wei are left for a payout. Nothing is taken: another budget may still refuse it. */
  holds(row: Pick<Row<"payouts">, "data">, wei: bigint): boolean
  /** Takes this many wei for a payout that is signed. */
  take(row: Pick<Row<"payouts">, "data">, wei: bigint): void
}

/** Whether a call carries out the authorization of a contract wallet. */
const isContractRelay = (data: string): boolean => data.startsWith(CONTRACT_RELAY)

const ofContracts = (chainId: number) =>
  sql<boolean>`i.lane = 'relay' and i.chain_id = ${chainId} and i.data like ${`${CONTRACT_RELAY}%`}`

/** Wei that payouts cost in the last 24 hours, and that those in flight may cost with `dataFee` wei each for their data. */
async function spentOn(ctx: TxContext, which: RawBuilder<boolean>, dataFee: bigint): Promise<bigint> {
  const since = new Date(ctx.now().getTime() - WINDOW_MS)
  const { rows } = await sql<{ wei: bigint }>`
    select ((select coalesce(sum(i.gas_cost), 0) from payouts i
        where i.gas_cost is not null and i.gas_cost_at > ${since} and ${which})
      + (select coalesce(sum(a.gas * a.max_fee + ${dataFee}::numeric * ${dataPartsOf}), 0) from wallets w
          join payouts i on i.chain_id = w.chain_id and i.wallet = w.address and i.state in ('assigned', 'mined')
          join transaction_attempts a on a.payout_id = i.id
        where i.gas_cost is null and ${which}
          and not exists (select from transaction_attempts b where b.payout_id = i.id and b.n > a.n)))::numeric(78,0) as wei`.execute(
    ctx.db,
  )
  return rows[0]?.wei ?? 0n
}

/** Wei that are left of each limit; undefined where there is none, or where it does not matter. */
interface Room {
  total: bigint | undefined
  contracts: bigint | undefined
}

/** What is left of a network's limits with `dataFee` wei for the data of each transaction; takes no lock. */
async function roomOf(ctx: TxContext, chainId: number, dataFee: bigint, callsContractWallets: boolean): Promise<Room> {
  const { gasBudgetTotal, relayContractBudget } = ctx.settings
  return {
    total: gasBudgetTotal === 0n ? undefined : gasBudgetTotal - (await spentOn(ctx, sql<boolean>`true`, dataFee)),
    contracts:
      relayContractBudget === 0n || !callsContractWallets
        ? undefined
        : relayContractBudget - (await spentOn(ctx, ofContracts(chainId), dataFee)),
  }
}

/**
 * Locks the totals; call it inside the transaction that signs, after the merchants' budgets are locked. With a total of all
 * merchants, all wallets wait for each other here. The contract wallets of a network need no lock: one relay wallet signs for
 * them, and its row is locked already.
 */
export async function lockTotals(
  ctx: TxContext,
  wallet: Row<"wallets">,
  dataFee: bigint,
  callsContractWallets: boolean,
): Promise<Totals> {
  if (ctx.settings.gasBudgetTotal > 0n) await sql`select pg_advisory_xact_lock(${LOCK})`.execute(ctx.db)
  let { total, contracts } = await roomOf(ctx, wallet.chain_id, dataFee, callsContractWallets)
  return {
    holds: ({ data }, wei) =>
      (total === undefined || wei <= total) && (contracts === undefined || !isContractRelay(data) || wei <= contracts),
    take: ({ data }, wei) => {
      if (total !== undefined) total -= wei
      if (contracts !== undefined && isContractRelay(data)) contracts -= wei
    },
  }
}

/** What one more transaction may cost, in wei: all of it, and for the data of a usual one. */
export interface Cost {
  most: bigint
  dataFee: bigint
}

/**
 * Whether all merchants together have no room for one more transaction; as {@link lockTotals} decides it, as otherwise a round
 * would pick, simulate and refuse the same payouts again and again.
 */
export async function isTotalSpent(ctx: Context, chainId: number, { most, dataFee }: Cost): Promise<boolean> {
  const { total } = await roomOf(ctx, chainId, dataFee, false)
  return total !== undefined && most > total
}

/** Whether a network's contract wallets have no room for one more relay. */
export async function areContractRelaysSpent(ctx: Context, chainId: number, { most, dataFee }: Cost): Promise<boolean> {
  const { contracts } = await roomOf(ctx, chainId, dataFee, true)
  return contracts !== undefined && most > contracts
}
