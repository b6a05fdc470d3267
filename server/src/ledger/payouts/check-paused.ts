/**
 * Pauses sales on a network while its payout wallet is halted: the wallet's key may be stolen, and the thief could
 * empty the receiving addresses. Money that arrives anyway is scanned and settled as usual.
 */
import { type RawBuilder, sql } from "kysely"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"

/** The columns that decide whether a receiving address may be paid. */
type PaidTo = Pick<Row<"deposits">, "factory" | "older_factory">

/** The halted payout wallets. They are never cached: the statement that reads what is sold reads them too. */
export type HaltedWallets = readonly Pick<Row<"wallets">, "chain_id" | "address">[]

/**
 * SQL: a cell with the {@link HaltedWallets}, for a statement that also reads something else; null if no wallet is
 * halted.
 */
export const haltedWalletsCell = sql<HaltedWallets | null>`(
  select jsonb_agg(jsonb_build_object('chain_id', chain_id, 'address', address)) from wallets
  where lane = 'payout' and status = 'halted')`

/** Says whether payments to a receiving address on a network are paused. */
type IsPaused = (network: Pick<Network, "chainId" | "depositFactory">, paidTo: PaidTo) => boolean

/**
 * Returns whether payments are paused while these wallets are halted. An earlier factory obeys another wallet, and this
 * process does not know which one, so any halted wallet pauses that factory's deposits. A factory older than this
 * version's contracts is always paused, because money there could not be moved.
 */
export function pausedWhile(ctx: Pick<TxContext, "settings">, halted: HaltedWallets | null): IsPaused {
  const ours = ctx.settings.serviceWallets
  return ({ chainId, depositFactory }, { factory, older_factory: isOlder }) =>
    isOlder ||
    (halted ?? []).some(
      ({ chain_id, address }) =>
        chain_id === chainId && (factory !== depositFactory || ours.length === 0 || ours.includes(address)),
    )
}

/**
 * SQL: whether payments to a network's new addresses are paused, as {@link pausedWhile} says for the network's current
 * factory. This condition belongs in the statement that creates something for sale, because an earlier read may be
 * outdated.
 */
export function isSellingPaused(ctx: Pick<TxContext, "settings">, chainId: RawBuilder<number>): RawBuilder<boolean> {
  const ours = sqlArray("text", ctx.settings.serviceWallets)
  return sql<boolean>`exists (select from wallets w where w.lane = 'payout' and w.status = 'halted' and w.chain_id = ${chainId}
    and (w.address = any(${ours}) or cardinality(${ours}) = 0))`
}

/** Reads which payout wallets are halted, and returns the function that says which payments are paused. */
export const pausedDeposits = async (ctx: TxContext): Promise<IsPaused> =>
  pausedWhile(ctx, (await haltedWallets(ctx.db, "all")) ?? null)

const haltedWallets = gatherRows(async (db: Db, keys: readonly "all"[]) => {
  const rows = await db
    .selectFrom("wallets")
    .select(["chain_id", "address"])
    .where("lane", "=", "payout")
    .where("status", "=", "halted")
    .execute()
  return new Map(keys.map(key => [key, rows]))
})

/** Whether a network's sales are paused now. */
export const isPaused = async (ctx: TxContext, network: NetworkInfo): Promise<boolean> =>
  isNewPaused(await pausedDeposits(ctx), network)

/** Throws `PAYMENTS_PAUSED`, in words for the merchant, while a network's sales are paused. */
export async function assertSelling(ctx: TxContext, network: NetworkInfo): Promise<void> {
  if (await isPaused(ctx, network)) throw sellingPaused(network)
}

/** The error for a merchant's request while a network's sales are paused. */
export const sellingPaused = (network: NetworkInfo): ApiError =>
  new ApiError(
    "PAYMENTS_PAUSED",
    undefined,
    `Payments on ${network.name} are paused, because the service's payout wallet is halted there. Nothing was changed. ` +
      "Ask the operator, who finds the reason with `sluice wallet show`. Try again when the wallet is resumed.",
  )

/** Whether payments to a network's new addresses are paused, according to the result of {@link pausedWhile}. */
export const isNewPaused = (isPaused: IsPaused, network: NetworkInfo): boolean =>
  isPaused(network, { factory: network.depositFactory, older_factory: false })
