/**
 * Classifies transfers: whether they are on chain, whether enough endpoints report them, and whether their sender
 * passed screening.
 */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Screening } from "../../platform/chain/screening.ts"
import type { TxContext } from "../../platform/context.ts"
import { believed } from "./count-single-source.ts"
import type { ClaimedTransfer, Screened } from "./sellable.ts"

export interface Classified<T extends ClaimedTransfer = ClaimedTransfer> {
  row: T
  isSettlementToken: boolean
  /** The transfer is part of a granted payment. */
  counted: boolean
  /** The transfer is confirmed, and not suspected to be displaced. */
  stands: boolean
  /** The transfer is on chain, and enough endpoints report it for its amount. */
  sure: boolean
  screening: Screening
}

/**
 * Classifies transfers that are summed together. `alone` is money that already counts together with these transfers and
 * that only one endpoint reports, in base units of the settlement token. The screening of a sender that was not
 * screened is `unknown`. A transfer that already counts is `clear`.
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

/** Returns the rows of these classified transfers. */
export const rowsOf = <T extends ClaimedTransfer>(classified: readonly Classified<T>[]): T[] =>
  classified.map(each => each.row)
