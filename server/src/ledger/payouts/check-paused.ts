/**
 * Pauses selling on a network while the payout wallet is halted there: its key may be stolen, and the thief could empty
 * the receiving addresses. Money that arrives anyway is scanned and settled as usual.
 */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"

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
