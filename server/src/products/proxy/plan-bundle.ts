/**
 * Plans what happens to one sender's open transfers to a bundle. Each transfer that settled a call is a separate
 * payment. Pure.
 */
import { type Classified, rowsOf } from "../../ledger/settlement/classify.ts"
import type { Paid, Plan } from "../../ledger/settlement/sellable.ts"
import { againAfter, againTogether } from "../../ledger/settlement/waits.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Screening } from "../../platform/chain/screening.ts"
import type { AccessTransfer } from "../paywalls/plan-access.ts"

/** How long until a transfer whose block may be displaced is checked again. */
const SUSPECT_MS = 30_000
/**
 * How long a transfer without a settlement does not count as unexpected money, because a settlement is recorded soon
 * after its transfer is mined.
 */
const UNRECORDED_MS = 600_000
const AGAIN_MS = 15_000

/** The most calls that one transaction settles, each as a payment with its payouts. The others stay due. */
const CALLS_PER_BATCH = 100

/** The facts on which the plan is based. */
export interface BundleFacts {
  payer: Address
  transfers: readonly Classified<AccessTransfer>[]
  /** The amounts of the calls that each transaction settled, in base units. */
  settlements: ReadonlyMap<Hash, readonly bigint[]>
  screening: Screening
  now: Date
}

/**
 * Plans what must happen for this sender, and when to check undecided transfers again. Money that settled no call
 * bought nothing and needs the merchant's decision.
 */
export function planBundle({ payer, transfers, settlements, screening, now }: BundleFacts): Plan {
  const after = (ms: number) => new Date(now.getTime() + ms)
  // A transfer whose block may be displaced is neither counted nor dropped.
  const considered = rowsOf(transfers.filter(each => each.stands))
  const sure = rowsOf(transfers.filter(each => each.sure && each.isSettlementToken))
  const wrong = rowsOf(transfers.filter(each => each.sure && !each.isSettlementToken))
  const again = new Map(transfers.filter(each => !each.stands).map(each => [each.row.id, after(SUSPECT_MS)]))
  const nothing = { reversed: [], paid: [], considered: [], waiting: [], again, isMore: false }
  if (screening === "unknown") {
    const later = againTogether(now, [...sure, ...wrong])
    for (const { id } of [...sure, ...wrong]) again.set(id, later)
    return nothing
  }
  if (screening === "listed")
    return { ...nothing, considered, waiting: [{ exception: "sanctioned", transfers: [...sure, ...wrong] }] }
  const amounts = new Map([...settlements].map(([hash, each]) => [hash, [...each]]))
  // A call is settled by one transfer of exactly the call's amount. The transaction's other transfers are unrelated
  // money.
  const settled = sure.filter(row => {
    const left = amounts.get(row.tx_hash) ?? []
    const i = left.indexOf(row.value)
    if (i >= 0) left.splice(i, 1)
    return i >= 0
  })
  const isSettled = new Set(settled)
  const others = sure.filter(row => !isSettled.has(row))
  const isNew = (row: AccessTransfer) =>
    row.payment_id === null && row.block_time.getTime() + UNRECORDED_MS > now.getTime()
  for (const { id, block_time: at } of others.filter(isNew)) again.set(id, againAfter(now, at, AGAIN_MS))
  // Each settled transfer becomes a payment with its payouts. Those above the limit follow in the next transaction.
  const inNext = new Set(settled.slice(CALLS_PER_BATCH))
  for (const { id } of inNext) again.set(id, now)
  // Each reversed or open payment of this sender can be granted only once.
  const own = transfers.filter(each => each.isSettlementToken && each.row.payment_payer === payer)
  const left = new Set(own.map(each => each.row.payment_id))
  const paid = settled.slice(0, CALLS_PER_BATCH).map((row): Paid => {
    const known = left.delete(row.payment_id) ? (row.payment_id ?? undefined) : undefined
    return { transfers: [row], known, price: row.value }
  })
  const waiting = [
    { exception: "late" as const, transfers: others.filter(row => !isNew(row)) },
    { exception: "wrong_asset" as const, transfers: wrong },
  ]
  const isMore = inNext.size > 0
  return { ...nothing, considered: considered.filter(row => !inNext.has(row)), paid, waiting, isMore }
}
