/**
 * Limits gas in 24 hours, in addition to each merchant's budget. `GAS_BUDGET_TOTAL` covers all merchants together,
 * because with `SIGNUP=open` one person can register any number of merchants. Relays that strangers cause get half of
 * this total, so payouts, captures and refunds never wait for these relays. A reservation counts twice, the second time
 * for the call that ends it. So voids and each payment's first capture are never stopped, and do not count again.
 * `RELAY_CONTRACT_BUDGET` covers relays of contract wallets on each network. A contract can approve in every
 * simulation, and then burn the gas of its relay when the relay is mined.
 */
import { type RawBuilder, sql } from "kysely"
import { CONTRACT_RELAY } from "../../platform/chain/authorizations.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { kindOf, kindsThat, numberByKind } from "../../platform/db/by-kind.ts"
import type { PayoutKind, PayoutKindName } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { timesInHalf, timesOf } from "./check-gas-budget.ts"
import { mostOf } from "./count-in-flight.ts"

const WINDOW_MS = 24 * 3_600_000
/** The key of the advisory lock. No other lock uses this number. */
const LOCK = 7_582_412

/** The columns of a payout that show whether the payout calls a contract wallet. */
type Relayed = Pick<Row<"payouts">, "kind" | "data" | "gas">
/** The columns of a payout that decide which part of the total it may use. */
type Totalled = Relayed & Pick<Row<"payouts">, "id" | "escrow_id">

/** What is left of the total budgets, locked until the transaction ends. */
export interface Totals {
  /**
   * Whether this many wei are left for a payout. The check takes nothing, because another budget may still refuse the
   * payout.
   */
  holds(row: Totalled, wei: bigint): boolean
  /** Takes this many wei for a payout that will be signed. */
  take(row: Totalled, wei: bigint): void
}

/** Whether a call submits the authorization of a contract wallet. */
export const isContractRelay = ({ kind, data, gas }: Relayed): boolean => {
  const { gasOfKey } = kindOf({ kind })
  return data.startsWith(CONTRACT_RELAY) || (gasOfKey !== undefined && gas !== gasOfKey)
}

const ofContracts = (chainId: number) =>
  sql<boolean>`i.lane = 'relay' and i.chain_id = ${chainId} and (i.data like ${`${CONTRACT_RELAY}%`}
    or i.gas <> ${numberByKind(kind => kind.gasOfKey)})`

const ONCE = sql<bigint>`1`

/**
 * SQL: whether the cost of a signed call `i` was already counted with its reservation. {@link prepaidOf} says the same
 * for unsigned calls.
 */
const isPrepaidCall =
  () => sql<boolean>`(i.kind in ${prepaidKinds("each")} or i.kind in ${prepaidKinds("first")} and not exists (select from payouts c
    where c.escrow_id = i.escrow_id and c.kind in ${prepaidKinds("first")} and c.state in ('assigned', 'mined', 'final') and c.nonce < i.nonce))`
const prepaidKinds = (which: PayoutKind["prepaid"]) => kindsThat(({ prepaid }) => prepaid === which)

/**
 * Sums, in wei, what payouts cost in the last 24 hours and what payouts in flight may cost. The cost of each payout is
 * multiplied by `times`.
 */
async function spentOn(ctx: TxContext, which: RawBuilder<boolean>, times: RawBuilder<bigint> = ONCE): Promise<bigint> {
  const since = new Date(ctx.now().getTime() - WINDOW_MS)
  const { rows } = await sql<{ wei: bigint }>`
    select ((select coalesce(sum(i.gas_cost * ${times}), 0) from payouts i
        where i.gas_cost is not null and i.gas_cost_at > ${since} and ${which})
      + (select coalesce(sum(${mostOf} * ${times}), 0) from wallets w
          join payouts i on i.chain_id = w.chain_id and i.wallet = w.address and i.state in ('assigned', 'mined')
          join transaction_attempts a on a.payout_id = i.id
        where i.gas_cost is null and ${which}
          and not exists (select from transaction_attempts b where b.payout_id = i.id and b.n > a.n)))::numeric(78,0) as wei`.execute(
    ctx.db,
  )
  return rows[0]?.wei ?? 0n
}

/** What is left for all merchants together, in wei, and the part of it for relays that strangers cause. */
interface Room {
  all: bigint
  relays: bigint
}

/** Reads what is left of the total; undefined without a limit. Takes no lock. */
async function totalRoom(ctx: TxContext): Promise<Room | undefined> {
  const { gasBudgetTotal: limit } = ctx.settings
  if (limit === 0n) return undefined
  const [all, relays] = await Promise.all([
    spentOn(
      ctx,
      sql<boolean>`not ${isPrepaidCall()}`,
      numberByKind(({ gasTimes }) => gasTimes),
    ),
    spentOn(ctx, sql<boolean>`i.lane = 'relay'`, timesOf()),
  ])
  return { all: limit - all, relays: limit / 2n - relays }
}

const hasRoom = ({ all, relays }: Room, kind: PayoutKind, wei: bigint): boolean =>
  wei * kind.gasTimes <= all && (timesInHalf(kind) === 0n || wei * timesInHalf(kind) <= relays)

/**
 * Returns a function that says which calls were already counted with their reservation: each void, and one capture per
 * payment unless another capture was signed and did not fail.
 */
async function prepaidOf(ctx: TxContext, payouts: readonly Totalled[]): Promise<(row: Totalled) => boolean> {
  const isOfFirst = (row: Totalled) => kindOf(row).prepaid === "first"
  const escrows = payouts.filter(isOfFirst).flatMap(({ escrow_id: id }) => id ?? [])
  const { rows } = await sql<{ escrow_id: string }>`select distinct escrow_id from payouts
    where escrow_id = any(${sqlArray("text", escrows)}) and kind in ${prepaidKinds("first")} and state in ('assigned', 'mined', 'final')`.execute(
    ctx.db,
  )
  const captured = new Set(rows.map(row => row.escrow_id))
  // If one round has several captures of a payment, only the first counts.
  const first = new Map<string | null, string>()
  for (const { escrow_id: of, id } of payouts.filter(isOfFirst)) if (!first.has(of)) first.set(of, id)
  return row => {
    const { escrow_id: of, id } = row
    if (isOfFirst(row)) return of !== null && !captured.has(of) && first.get(of) === id
    return kindOf(row).prepaid === "each"
  }
}

/** Reads what is left for a network's contract wallets, in wei; undefined without a limit. Takes no lock. */
async function contractRoom(ctx: TxContext, chainId: number): Promise<bigint | undefined> {
  const { relayContractBudget: limit } = ctx.settings
  return limit === 0n ? undefined : limit - (await spentOn(ctx, ofContracts(chainId)))
}

/**
 * Locks the totals. Call this inside the transaction that signs, after locking the merchants' budgets. With
 * `GAS_BUDGET_TOTAL`, all wallets wait for each other here. The budget of contract wallets needs no lock, because one
 * relay wallet signs for them, and its row is already locked. `withContracts` says whether one of the payouts is a
 * relay of a contract wallet.
 */
export async function lockTotals(
  ctx: TxContext,
  wallet: Row<"wallets">,
  payouts: readonly Totalled[],
  withContracts: boolean,
): Promise<Totals> {
  if (ctx.settings.gasBudgetTotal > 0n) await sql`select pg_advisory_xact_lock(${LOCK})`.execute(ctx.db)
  let total = await totalRoom(ctx)
  const isPrepaid = total === undefined ? () => true : await prepaidOf(ctx, payouts)
  let contracts = withContracts ? await contractRoom(ctx, wallet.chain_id) : undefined
  return {
    holds: (row, wei) =>
      (total === undefined || isPrepaid(row) || hasRoom(total, kindOf(row), wei)) &&
      (contracts === undefined || !isContractRelay(row) || wei <= contracts),
    take: (row, wei) => {
      const kind = kindOf(row)
      const whole = isPrepaid(row) ? 0n : wei * kind.gasTimes
      if (total !== undefined) total = { all: total.all - whole, relays: total.relays - wei * timesInHalf(kind) }
      if (contracts !== undefined && isContractRelay(row)) contracts -= wei
    },
  }
}

/**
 * Whether all merchants together have no room for another transaction of `most` wei, by default the cost of a payout.
 * The check decides as {@link lockTotals} does. Otherwise a round would pick, simulate and refuse the same payouts
 * again and again.
 */
export async function isTotalSpent(ctx: Context, most: bigint, kind: PayoutKindName = "share"): Promise<boolean> {
  const room = await totalRoom(ctx)
  return room !== undefined && !hasRoom(room, kindOf({ kind }), most)
}

/** Whether the contract wallets of a network have no room for another relay of `most` wei. */
export async function areContractRelaysSpent(ctx: Context, chainId: number, most: bigint): Promise<boolean> {
  const room = await contractRoom(ctx, chainId)
  return room !== undefined && most > room
}
