/** What each transfer is good for: whether the chain stands by it, whether that is believed, and what its sender is. */
import type { NetworkInfo } from "../chain/networks.ts"
import type { Screening } from "../chain/sanctions.ts"
import type { TxContext } from "../context.ts"
import type { ClaimedTransfer, Screened } from "./sellable.ts"
import { believed } from "./single-source.ts"

/** A transfer, classified. */
export interface Classified<T extends ClaimedTransfer = ClaimedTransfer> {
  row: T
  isSettlementToken: boolean
  /** Part of a payment that is granted. */
  counted: boolean
  /** Confirmed, and not suspected of having been displaced. */
  stands: boolean
  /** Stands, and enough endpoints say so for its amount. */
  sure: boolean
  screening: Screening
}

/**
 * Classifies the transfers that add up among themselves. `alone` is what already counts beside them on the report of one endpoint alone, in
 * base units of the settlement token. Who was not screened is `unknown`; what counts already is `clear`.
 */
export function classify<T extends ClaimedTransfer>(
  ctx: TxContext,
  network: NetworkInfo,
  transfers: readonly T[],
  screened: Screened,
  alone = 0n,
): Classified<T>[] {
  const inToken = (row: T) => row.token === network.token.address
  const stands = (row: T) => ["confirmed", "final"].includes(row.state) && row.suspect_at === null
  const isBelieved = believed(
    ctx,
    network,
    transfers.filter(row => stands(row) && inToken(row)),
    alone,
  )
  return transfers.map(row => {
    const counted = row.payment_status === "granted"
    return {
      row,
      isSettlementToken: inToken(row),
      counted,
      stands: stands(row),
      sure: stands(row) && isBelieved(row),
      screening: counted ? "clear" : (screened.get(row.from_address) ?? "unknown"),
    }
  })
}

/** The transfers again. */
export const rowsOf = <T extends ClaimedTransfer>(classified: readonly Classified<T>[]): T[] =>
  classified.map(each => each.row)
