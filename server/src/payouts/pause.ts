/**
 * Pauses selling on a network while the payout wallet is halted there: its key may be stolen, and the thief could empty
 * the receiving addresses. Money that arrives anyway is scanned and settled as usual.
 */
import { sql } from "kysely"
import type { Network, NetworkInfo } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import { gatherRows } from "../db/gather.ts"
import type { Db } from "../db/open.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { ApiError } from "../errors.ts"

/** The columns of a receiving address that decide whether it may be paid. */
type PaidTo = Pick<Row<"deposits">, "factory" | "older_factory">

/**
 * Reads which payout wallets are halted. The returned function says whether payments to a receiving address on a
 * network are paused. An earlier factory obeys another wallet, whose row alone is known here, so any halted wallet
 * pauses that factory's deposits. A factory from before the contracts that this version serves is always paused: its
 * money could not be moved.
 */
export async function pausedDeposits(
  ctx: TxContext,
): Promise<(network: Pick<Network, "chainId" | "depositFactory">, paidTo: PaidTo) => boolean> {
  const halted = (await haltedWallets(ctx.db, "all")) ?? []
  const ours = ctx.settings.serviceWallets
  return ({ chainId, depositFactory }, { factory, older_factory: isOlder }) =>
    isOlder ||
    halted.some(
      ({ chain_id, address }) =>
        chain_id === chainId && (factory !== depositFactory || ours.length === 0 || ours.includes(address)),
    )
}

const haltedWallets = gatherRows(async (db: Db, keys: readonly "all"[]) => {
  const rows = await db
    .selectFrom("wallets")
    .select(["chain_id", "address"])
    .where("lane", "=", "payout")
    .where("status", "=", "halted")
    .execute()
  return new Map(keys.map(key => [key, rows]))
})

/** Whether selling is paused on a network now. */
export const isPaused = async (ctx: TxContext, network: NetworkInfo): Promise<boolean> =>
  (await pausedDeposits(ctx))(network, { factory: network.depositFactory, older_factory: false })

/**
 * Returns the ids of relays that would sell something while selling is paused on a network: their receiving address
 * belongs to a paused factory, or they reserve money in the escrow.
 */
export async function pausedPayouts(
  ctx: Context,
  network: Network,
  rows: readonly Pick<Row<"payouts">, "id" | "deposit_id" | "kind">[],
): Promise<Set<string>> {
  const ids = rows.flatMap(row => row.deposit_id ?? [])
  if (ids.length === 0 && rows.every(row => row.kind !== "reserve")) return new Set()
  const isPausedAt = await pausedDeposits(ctx)
  const isReservingPaused = isPausedAt(network, { factory: network.depositFactory, older_factory: false })
  const deposits = await ctx.db
    .selectFrom("deposits")
    .select(["id", "factory", "older_factory"])
    .where(sql<boolean>`id = any(${sqlArray("bigint", ids)})`)
    .execute()
  const paused = new Set(deposits.filter(each => isPausedAt(network, each)).map(({ id }) => id))
  const isPausedFor = (row: (typeof rows)[number]) =>
    row.deposit_id === null ? row.kind === "reserve" && isReservingPaused : paused.has(row.deposit_id)
  return new Set(rows.filter(isPausedFor).map(({ id }) => id))
}

/** Throws `PAYMENTS_PAUSED`, in words for the merchant, while selling is paused on a network. */
export async function assertSelling(ctx: TxContext, network: NetworkInfo): Promise<void> {
  if (await isPaused(ctx, network))
    throw new ApiError(
      "PAYMENTS_PAUSED",
      undefined,
      `Payments on ${network.name} are paused, because the service's payout wallet is halted there. Nothing was changed. ` +
        "Ask the operator, who sees the reason with `sluice wallet show`, and try again when the wallet is resumed.",
    )
}
