/**
 * Decides whether a transfer that only one of two endpoints reports counts. Such a transfer counts only for small
 * payments. `QUORUM_ABOVE` limits the total that one sender or one checkout paid, so that many small lies can't add up
 * to a large one.
 */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { parseAmount } from "../../platform/money/amount.ts"

type Transfer = Pick<Row<"transfers">, "value" | "token" | "single_source">

/**
 * Returns a function that says whether each of these transfers, which are summed together, counts. `counted` is money
 * that already counts and that only one endpoint reports, in base units of the settlement token. In other tokens no
 * amount counts as small.
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
