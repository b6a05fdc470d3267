/** Ends a round's submissions whose transaction pays nothing here or was never found, and postpones the others. */
import { backoffMs } from "../../platform/backoff.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Observation } from "./observe-chain.ts"
import type { WatchedDeposit } from "./queries.ts"
import { type Failure, faultOf, notFound } from "./submission-faults.ts"

const SECOND_MS = 1_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/**
 * How long after its submission a transaction is still looked up: if no endpoint knows it, and if no quorum can read
 * it.
 */
const NO_TRACE_MS = DAY_MS

const UNREADABLE_MS = 7 * DAY_MS

/**
 * Returns the wait before a receipt is read again, in milliseconds, after `attempts` reads without a receipt. The wait
 * is 5 s at first and doubles up to an hour. So an invented hash costs little: 17 calls in the day in which it is
 * looked up.
 */
export const receiptBackoffMs = (attempts: number): number => backoffMs(5 * SECOND_MS, attempts, HOUR_MS)

/** The wait before rereading a receipt that is not deep enough to be judged. */
const SHALLOW_MS = 5_000

export interface SubmissionChange {
  submission: Row<"submissions">
  change: Partial<Row<"submissions">>
}

/** Ends or postpones the due submissions. Submissions that name a stored transfer are linked later. */
export function judgeSubmissions(
  network: NetworkInfo,
  { quorum, deposits, submissions }: Pick<Observation, "quorum" | "deposits" | "submissions">,
  now: Date,
): SubmissionChange[] {
  const byResource = Map.groupBy(deposits.values(), deposit => deposit.resource)
  // Each receipt is prepared once, because anyone may submit one transaction with thousands of transfers at each of a
  // hundred paywalls.
  const receipts = new Map([...new Set(submissions.map(row => row.tx_hash))].map(hash => [hash, brief(hash)]))
  return submissions.map(submission => ({ submission, change: changeOf(submission) }))

  function brief(hash: Hash) {
    const receipt = quorum.receiptOf(hash)
    if (!receipt) return receipt
    const to = Map.groupBy(receipt.transfers, transfer => transfer.to)
    return { receipt, to, first: receipt.transfers.filter(({ token }) => token === network.token.address).slice(0, 1) }
  }
  function changeOf(submission: Row<"submissions">): SubmissionChange["change"] {
    const found = receipts.get(submission.tx_hash)
    if (!found) {
      // A submission does not end at its first attempt, because the service itself may have been down all day.
      const overdue = now.getTime() - submission.submitted_at.getTime() >= NO_TRACE_MS && submission.attempts > 1
      // A submission also ends if no quorum can judge it for a week, for example because its receipt is too large.
      const isLost = now.getTime() - submission.submitted_at.getTime() >= UNREADABLE_MS
      const isOver = overdue && (found === null || isLost)
      return isOver ? failed(notFound(network.name), null) : again(submission, receiptBackoffMs(submission.attempts))
    }
    const { receipt, to, first } = found
    const deep = quorum.depthOf(receipt.blockNumber, receipt.blockHash) >= network.confirmations
    const own = byResource.get(submission.resource_id) ?? []
    const transfers = [...own.flatMap(({ address }) => to.get(address) ?? []), ...first]
    const claim = claimOf(network, own, submission)
    const fault = faultOf({ ...receipt, transfers }, claim, address => ownerOf(deposits, address))
    if (deep && fault) return failed(fault, receipt.blockNumber)
    return { ...again(submission, SHALLOW_MS), block_number: receipt.blockNumber }
  }
  function again({ attempts }: Row<"submissions">, ms: number) {
    return { run_at: new Date(now.getTime() + ms), attempts: attempts + 1, updated_at: now }
  }
  function failed({ reason, message }: Failure, blockNumber: bigint | null) {
    return { status: "failed" as const, reason, message, run_at: null, block_number: blockNumber, updated_at: now }
  }
}

function claimOf(network: NetworkInfo, own: readonly WatchedDeposit[], submission: Row<"submissions">) {
  const payTo = own.reduce(
    (last, each) => (each.id > last.id ? each : last),
    own[0] ?? { id: 0n, address: undefined },
  ).address
  if (!payTo) throw new Error(`${submission.resource_id} has no receiving address`)
  const addresses = new Set(own.map(deposit => deposit.address))
  const sender = submission.by_sender ? submission.address : null
  return { address: sender, deposits: addresses, payTo, token: network.token, network: network.name }
}

function ownerOf(deposits: Map<Address, WatchedDeposit>, address: Address): string | undefined {
  const resource = deposits.get(address)?.resource
  // The id of a session is not shown, because only the session's payer knows it.
  return resource?.startsWith("pw_") ? `the paywall ${resource}` : resource && "another checkout"
}
