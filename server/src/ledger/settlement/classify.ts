/** Classifies transfers: on chain or not, backed by enough endpoints or not, and the screening result of the sender. */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Screening } from "../../platform/chain/screening.ts"
import type { TxContext } from "../../platform/context.ts"
import { believed } from "./count-single-source.ts"
import type { ClaimedTransfer, Screened } from "./sellable.ts"

/** A transfer, classified. */
export interface Classified<T extends ClaimedTransfer = ClaimedTransfer> {
  row: T
  isSettlementToken: boolean
  /** Part of a granted payment. */
  counted: boolean
  /** Confirmed, and not suspected of having been displaced. */
  stands: boolean
  /** Stands, and enough endpoints report it for its amount. */
  sure: boolean
  screening: Screening
}

/**
 * Classifies transfers that are added up together. `alone` is what already counts beside them on the report of one
 * endpoint alone, in base units of the settlement token. A sender that was not screened is `unknown`. A transfer that
 * already counts is `clear`.
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

/** Returns the rows of classified transfers. */
export const rowsOf = <T extends ClaimedTransfer>(classified: readonly Classified<T>[]): T[] =>
  classified.map(each => each.row)
