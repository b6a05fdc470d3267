/** Plans what happens to one sender's open transfers to a paywall. Pure. */
import { type Failure, late, noBuyer, sanctioned, underpaid } from "../../ledger/scanner/submission-faults.ts"
import { type Classified, rowsOf } from "../../ledger/settlement/classify.ts"
import type { ClaimedTransfer, Paid, Plan, WaitingGroup } from "../../ledger/settlement/sellable.ts"
import { againTogether } from "../../ledger/settlement/waits.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { mayBuy } from "../../platform/chain/may-buy.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Screening } from "../../platform/chain/screening.ts"
import type { FailureReason } from "../../platform/db/schema.ts"
import {
  foldTransfers,
  minPrice,
  type OpenTransfer,
  priceAt,
  QUOTE_MS,
  UNSUBMITTED_MS,
  type Version,
  versionsFrom,
} from "./payment.ts"

export type AccessTransfer = ClaimedTransfer & { payment_payer: Address | null }

/** How long until a transfer whose block may be displaced is checked again. */
const SUSPECT_MS = 30_000

/** The facts on which the plan is based. */
export interface AccessFacts {
  payer: Address
  network: NetworkInfo
  versions: readonly Version[]
  /** The transactions that the sender submitted. */
  submitted: ReadonlySet<Hash>
  /** When agents' payments were accepted, by {@link authorizedKey}. */
  authorized: ReadonlyMap<string, Date>
  transfers: readonly Classified<AccessTransfer>[]
  screening: Screening
  /** Whether the sender has an unconfirmed transfer. */
  isMoreComing: boolean
  now: Date
}

/** Transactions whose submissions fail, and the reason. */
interface Failed {
  hashes: Hash[]
  failure: Failure & { reason: FailureReason }
}

export interface AccessPlan extends Plan {
  failed: Failed[]
}

/**
 * The key, in {@link AccessFacts}, of the payment made by an authorization. An authorization moves exactly its own
 * amount.
 */
export const authorizedKey = (hash: Hash, amount: bigint): string => `${hash} ${amount}`

/** Plans what must happen for this sender, and when to check undecided transfers again. */
export function planAccess(facts: AccessFacts): AccessPlan {
  const { transfers, screening, submitted, now } = facts
  const soon = new Date(now.getTime() + SUSPECT_MS)
  // A transfer whose block may be displaced is neither counted nor dropped.
  const considered = rowsOf(transfers.filter(each => each.stands))
  const sure = rowsOf(transfers.filter(each => each.sure && each.isSettlementToken))
  const wrong = rowsOf(transfers.filter(each => each.sure && !each.isSettlementToken))
  const oldest = sure.reduce((first, { block_time: at }) => Math.min(first, at.getTime()), now.getTime())
  const near = { ...facts, versions: versionsFrom(facts.versions, new Date(oldest - QUOTE_MS)) }
  const open = sure.map(row => openTransfer(near, row))
  const again = new Map(transfers.filter(each => !each.stands).map(each => [each.row.id, soon]))
  for (const { id, ready, minedAt } of open) if (!ready) again.set(id, new Date(minedAt.getTime() + UNSUBMITTED_MS))
  const nothing = { reversed: [], paid: [], considered: [], waiting: [], failed: [], again, isMore: false }
  if (screening === "unknown") {
    const later = againTogether(now, [...sure, ...wrong])
    for (const { id } of [...open.filter(each => each.ready), ...wrong]) again.set(id, later)
    return nothing
  }
  if (screening === "listed")
    return {
      ...nothing,
      considered,
      waiting: [{ exception: "sanctioned", transfers: [...sure, ...wrong] }],
      failed: [{ hashes: hashesOf(sure), failure: sanctioned }],
    }
  if (!mayBuy(facts.network, facts.payer))
    return {
      ...nothing,
      considered,
      waiting: [
        { exception: "no_buyer", transfers: sure },
        { exception: "wrong_asset", transfers: wrong },
      ],
      failed: [{ hashes: hashesOf(sure), failure: noBuyer }],
    }
  const plan = planClear(facts, open, sure, wrong)
  // Only submitted transactions can fail, and a flood leaves many small parts.
  const failed = plan.failed.flatMap(({ hashes, failure }): Failed[] => {
    const own = hashes.filter(hash => submitted.has(hash))
    return own.length > 0 ? [{ hashes: own, failure }] : []
  })
  return { ...nothing, considered, ...plan, failed }
}

function planClear(
  { payer, transfers, network, isMoreComing }: AccessFacts,
  open: readonly OpenTransfer[],
  sure: readonly AccessTransfer[],
  wrong: readonly AccessTransfer[],
): Pick<AccessPlan, "paid" | "waiting" | "failed"> {
  const byId = new Map(sure.map(row => [row.id, row]))
  const rows = (parts: readonly OpenTransfer[]) => parts.flatMap(part => byId.get(part.id) ?? [])
  const { paid, short, late: tooLate } = foldTransfers(open)
  // Each reversed or open payment of this sender can be granted only once.
  const own = transfers.filter(each => each.isSettlementToken && each.row.payment_payer === payer)
  const left = new Set(own.map(each => each.row.payment_id))
  const payments = paid.map((parts): Paid => {
    const transfers = rows(parts)
    const known = transfers.find(row => left.delete(row.payment_id))?.payment_id ?? undefined
    return { transfers, known, price: minPrice(parts) }
  })
  // While more money is on its way, it is too early to fail a submission as underpaid.
  const tooLittle = isMoreComing
    ? []
    : short.map(({ transfers, received, price }) => ({
        hashes: hashesOf(rows(transfers)),
        failure: underpaid(received, price, network.token),
      }))
  const waiting: WaitingGroup[] = [
    { exception: "underpaid", transfers: short.flatMap(each => rows(each.transfers)) },
    { exception: "late", transfers: rows(tooLate) },
    { exception: "wrong_asset", transfers: wrong },
  ]
  return { paid: payments, waiting, failed: [{ hashes: hashesOf(rows(tooLate)), failure: late }, ...tooLittle] }
}

const openTransfer = (facts: AccessFacts, row: AccessTransfer): OpenTransfer => ({
  id: row.id,
  value: row.value,
  minedAt: row.block_time,
  price: priceAt(facts.versions, row.deposit_id, offeredAt(facts, row)),
  ready: facts.submitted.has(row.tx_hash) || row.block_time.getTime() + UNSUBMITTED_MS <= facts.now.getTime(),
})

/**
 * Returns when the price of a transfer was offered. For an agent's payment, this is when it was accepted and served,
 * if that was at most an hour before its block. A payer can execute an authorization much later.
 */
function offeredAt({ authorized }: AccessFacts, { tx_hash, value, block_time: minedAt }: AccessTransfer): Date {
  const acceptedAt = authorized.get(authorizedKey(tx_hash, value))
  return acceptedAt && minedAt.getTime() - acceptedAt.getTime() <= QUOTE_MS ? acceptedAt : minedAt
}

const hashesOf = (transfers: readonly { tx_hash: Hash }[]): Hash[] => [
  ...new Set(transfers.map(transfer => transfer.tx_hash)),
]
