/** Classifies transfers: are they on chain, do enough endpoints report them, and did their sender pass screening. */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Screening } from "../../platform/chain/screening.ts"
import type { TxContext } from "../../platform/context.ts"
import { believed } from "./count-single-source.ts"
import type { ClaimedTransfer, Screened } from "./sellable.ts"

export interface Classified<T extends ClaimedTransfer = ClaimedTransfer> {
  row: T
  isSettlementToken: boolean
  /** Part of a granted payment. */
  counted: boolean
  /** Confirmed, and not suspected to be displaced. */
  stands: boolean
  /** It stands, and enough endpoints report it for its amount. */
  sure: boolean
  screening: Screening
}

/**
 * Classifies transfers that are summed together. `alone` is the money that only one endpoint reports and that already
 * counts with them, in base units of the settlement token. A sender that was not screened is `unknown`. A transfer that
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
