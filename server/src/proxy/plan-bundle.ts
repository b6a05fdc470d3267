/** What one sender's open transfers to a bundle come to: each that settled a call is a payment of its own. Pure. */
import type { Address, Hash } from "../chain/hex.ts"
import type { Screening } from "../chain/sanctions.ts"
import type { AccessTransfer } from "../paywalls/plan-access.ts"
import { type Classified, rowsOf } from "../settlement/classify.ts"
import type { Paid, Plan } from "../settlement/sellable.ts"

/** While the screening can't be done, transfers wait so long before they are tried again. */
const UNSCREENED_MS = 30_000
/** A settlement is recorded soon after it is mined; until then, its transfer is not money that nobody expected. */
const UNRECORDED_MS = 600_000
const AGAIN_MS = 15_000

/** What the plan follows from. */
export interface BundleFacts {
  payer: Address
  transfers: readonly Classified<AccessTransfer>[]
  /** The amounts of the calls that each transaction settled, in base units. */
  settlements: ReadonlyMap<Hash, readonly bigint[]>
  screening: Screening
  now: Date
}

/**
 * What has to happen for this sender, and when what can't be decided now is due again. Money that settled no call waits for the
 * merchant: it bought nothing.
 */
export function planBundle({ payer, transfers, settlements, screening, now }: BundleFacts): Plan {
  const after = (ms: number) => new Date(now.getTime() + ms)
  // What is suspected of having been displaced is neither counted nor forgotten.
  const looked = rowsOf(transfers.filter(each => each.stands))
  const sure = rowsOf(transfers.filter(each => each.sure && each.isSettlementToken))
  const wrong = rowsOf(transfers.filter(each => each.sure && !each.isSettlementToken))
  const again = new Map(transfers.filter(each => !each.stands).map(each => [each.row.id, after(UNSCREENED_MS)]))
  const nothing = { reversed: [], paid: [], looked: [], waiting: [], again, isMore: false }
  if (screening === "unknown") {
    for (const { id } of [...sure, ...wrong]) again.set(id, after(UNSCREENED_MS))
    return nothing
  }
  if (screening === "listed")
    return { ...nothing, looked, waiting: [{ exception: "sanctioned", transfers: [...sure, ...wrong] }] }
  const amounts = new Map([...settlements].map(([hash, each]) => [hash, [...each]]))
  // A call is settled by one transfer of its own amount; whatever else the transaction moved is other money.
  const settled = sure.filter(row => {
    const left = amounts.get(row.tx_hash) ?? []
    const i = left.indexOf(row.value)
    if (i >= 0) left.splice(i, 1)
    return i >= 0
  })
  const others = sure.filter(row => !settled.includes(row))
  const isNew = (row: AccessTransfer) =>
    row.payment_id === null && row.block_time.getTime() + UNRECORDED_MS > now.getTime()
  for (const { id } of others.filter(isNew)) again.set(id, after(AGAIN_MS))
  // Each payment of this sender that was reversed, or waits, can be granted once.
  const own = transfers.filter(each => each.isSettlementToken && each.row.payment_payer === payer)
  const left = new Set(own.map(each => each.row.payment_id))
  const paid = settled.map((row): Paid => {
    const known = left.delete(row.payment_id) ? (row.payment_id ?? undefined) : undefined
    return { transfers: [row], known, price: row.value }
  })
  const waiting = [
    { exception: "late" as const, transfers: others.filter(row => !isNew(row)) },
    { exception: "wrong_asset" as const, transfers: wrong },
  ]
  return { ...nothing, looked, paid, waiting }
}
