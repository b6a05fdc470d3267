/**
 * Matches money that a merchant gave back without the service with the payments or surpluses that it returned. Pure.
 */
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"

/** Money that waits for the merchant's decision at an address from which the merchant gave money back. */
export interface AwaitedReturn {
  paymentId: string
  merchantId: string
  depositId: bigint
  token: Address
  /** In base units. */
  amount: bigint
  /**
   * Whether this is a surplus. Only an outflow of the whole amount ends a surplus, because the rest of its payment
   * still counts.
   */
  isSurplus: boolean
  /** The newest block that brought some of the money. */
  since: bigint
}

/** An outflow and the open payment or surplus that it returned. */
export interface Match {
  waiting: AwaitedReturn
  outflow: Row<"outflows">
}

/**
 * Matches each outflow with what it returned: by its nonce, or by its amount if exactly one earlier open payment or
 * surplus has that amount. Each outflow costs one lookup, because strangers control how many payments wait.
 */
export function matchGivenBack(
  waiting: readonly AwaitedReturn[],
  outflows: readonly Row<"outflows">[],
  owners: ReadonlyMap<Hash, string>,
): Match[] {
  const matches: Match[] = []
  const taken = new Set<AwaitedReturn>()
  const take = (found: AwaitedReturn, outflow: Row<"outflows">) => {
    taken.add(found)
    matches.push({ waiting: found, outflow })
  }
  const ownerOf = ({ nonce }: Row<"outflows">) => (nonce === null ? undefined : owners.get(nonce))
  const isAll = (each: AwaitedReturn, { amount }: Row<"outflows">) => !each.isSurplus || each.amount === amount
  const byPlace = Map.groupBy(waiting, each => `${each.paymentId} ${each.depositId} ${each.token}`)
  for (const outflow of outflows) {
    const at = byPlace.get(`${ownerOf(outflow)} ${outflow.deposit_id} ${outflow.token}`) ?? []
    const [only, second] = at.filter(each => !taken.has(each) && isAll(each, outflow))
    if (only && !second) take(only, outflow)
  }
  const left = waiting
    .filter(each => !taken.has(each))
    .sort((a, b) => (a.since < b.since ? -1 : a.since > b.since ? 1 : 0))
  const byAmount = Map.groupBy(left, each => `${each.depositId} ${each.token} ${each.amount}`)
  for (const outflow of outflows) {
    if (ownerOf(outflow) !== undefined) continue
    const like = byAmount.get(`${outflow.deposit_id} ${outflow.token} ${outflow.amount}`) ?? []
    const isBefore = (each: AwaitedReturn | undefined) => each !== undefined && each.since < outflow.block_number
    const [only, second] = like
    if (!only || !isBefore(only) || isBefore(second)) continue
    take(only, outflow)
    like.shift()
  }
  return matches
}
