/**
 * What one of two endpoints alone vouches for counts towards small payments only: `QUORUM_ABOVE` is compared with all that
 * one sender, or one checkout, was paid, so that many small lies are no large one.
 */
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { parseAmount } from "../money/amount.ts"

type Transfer = Pick<Row<"transfers">, "value" | "token" | "single_source">

/**
 * Whether a transfer counts, of these that would be added up; `counted` is what already counts on the report of one endpoint alone, in
 * base units of the settlement token. Of other tokens no amount is small.
 */
export function believed(
  ctx: TxContext,
  network: NetworkInfo,
  transfers: readonly Transfer[],
  counted = 0n,
): (transfer: Transfer) => boolean {
  const total = transfers.reduce((sum, { value }) => sum + value, counted)
  const isSmall = total <= parseAmount(ctx.settings.quorumAbove, network.token.decimals)
  return transfer => !transfer.single_source || (isSmall && transfer.token === network.token.address)
}
