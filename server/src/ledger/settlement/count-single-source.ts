/**
 * A transfer that only one of two endpoints reports counts towards small payments only: `QUORUM_ABOVE` is compared with
 * all that one sender, or one checkout, paid, so that many small lies do not add up to a large one.
 */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { parseAmount } from "../../platform/money/amount.ts"

type Transfer = Pick<Row<"transfers">, "value" | "token" | "single_source">

/**
 * Returns whether each of these transfers, which are added up together, counts. `counted` is what already counts on the
 * report of one endpoint alone, in base units of the settlement token. In other tokens no amount is small.
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
