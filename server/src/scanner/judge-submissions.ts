/** Ends the submissions of a round whose transaction pays nothing here, or was never found, and puts the others off. */
import type { Address } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { type Observation, resourceOf } from "./observe-chain.ts"
import type { WatchedDeposit } from "./queries.ts"
import { type Failure, faultOf, notFound } from "./submission-faults.ts"

const SECOND_MS = 1_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** How long a submission whose transaction no endpoint knows is asked for, from its submission on. */
const NO_TRACE_MS = DAY_MS

/**
 * The milliseconds before a receipt is asked for again, after so many attempts without one: 5 s, doubling, at most an
 * hour, so that made-up hashes cost little (17 calls in their day).
 */
export const receiptBackoffMs = (attempts: number): number =>
  Math.min(5 * SECOND_MS * 2 ** Math.min(attempts, 12), HOUR_MS)

/** A receipt that is there, but not deep enough to be judged, is looked at again after so long. */
const SHALLOW_MS = 5_000

/** Ends, or puts off, the submissions that were due, and answers those that ended. Those that name a transfer in sight are linked later. */
export async function judgeSubmissions(
  ctx: TxContext,
  network: NetworkInfo,
  { panel, deposits, submissions }: Observation,
): Promise<Row<"submissions">[]> {
  const now = ctx.now()
  const ended: Row<"submissions">[] = []
  for (const submission of submissions) {
    const receipt = panel.receiptOf(submission.tx_hash)
    const again = (ms: number) => ({
      run_at: new Date(now.getTime() + ms),
      attempts: submission.attempts + 1,
      updated_at: now,
    })
    let change: Partial<Row<"submissions">>
    if (receipt) {
      const deep = panel.depthOf(receipt.blockNumber, receipt.blockHash) >= network.confirmations
      const fault = faultOf(receipt, claimOf(network, deposits, submission), address => ownerOf(deposits, address))
      change =
        deep && fault ? failed(fault, receipt.blockNumber) : { ...again(SHALLOW_MS), block_number: receipt.blockNumber }
    } else {
      // Not at the first look: the service itself may have been down all day.
      const overdue = now.getTime() - submission.submitted_at.getTime() >= NO_TRACE_MS && submission.attempts > 1
      change =
        receipt === null && overdue
          ? failed(notFound(network.name), null)
          : again(receiptBackoffMs(submission.attempts))
    }
    if (change.status === "failed") ended.push(submission)
    await ctx.db
      .updateTable("submissions")
      .set(change)
      .where("id", "=", submission.id)
      .where("status", "=", "verifying")
      .execute()
  }
  return ended

  function failed({ reason, message }: Failure, blockNumber: bigint | null) {
    return { status: "failed" as const, reason, message, run_at: null, block_number: blockNumber, updated_at: now }
  }
}

function claimOf(network: NetworkInfo, deposits: Map<Address, WatchedDeposit>, submission: Row<"submissions">) {
  const own = [...deposits.values()].filter(deposit => deposit.resource === resourceOf(submission))
  const payTo = own.reduce(
    (last, each) => (each.id > last.id ? each : last),
    own[0] ?? { id: 0n, address: undefined },
  ).address
  if (!payTo) throw new Error(`${resourceOf(submission)} has no receiving address`)
  const addresses = new Set(own.map(deposit => deposit.address))
  const sender = submission.paywall_id === null ? null : submission.address
  return { address: sender, deposits: addresses, payTo, token: network.token, network: network.name }
}

function ownerOf(deposits: Map<Address, WatchedDeposit>, address: Address): string | undefined {
  const resource = deposits.get(address)?.resource
  // A session's id is known to its payer alone.
  return resource?.startsWith("pw_") ? `the paywall ${resource}` : resource && "another checkout"
}
