/** Reads from the chain which place 0G's log gave to a file that our own transaction submitted. */
import { decodeEventLog, type Hex } from "viem"
import type { Hash } from "../../../platform/chain/hex.ts"
import type { RpcResult } from "../../../platform/chain/rpc.ts"
import { receiptCall } from "../../../platform/chain/transfers.ts"
import type { Context } from "../../../platform/context.ts"
import { readAgreed } from "./read-agreed.ts"
import type { Storage } from "./storage.ts"
import { flowAbi, type Submission } from "./submission.ts"

/** The place of a file in the log of all files: its number, and its first chunk. */
export interface Place {
  seq: number
  start: number
}

/**
 * Returns the place that the `Submit` event of the transaction gives the file. Undefined if too few endpoints report
 * the event.
 */
export async function readSubmitted(
  ctx: Pick<Context, "signal">,
  storage: Storage,
  txHash: Hash,
  submission: Submission,
): Promise<Place | undefined> {
  const text = await readAgreed(ctx, storage, receiptCall(txHash), result => placeIn(result, storage, submission))
  if (text === undefined) return undefined
  const [seq = Number.NaN, start = Number.NaN] = text.split(" ").map(Number)
  return Number.isSafeInteger(seq) && Number.isSafeInteger(start) ? { seq, start } : undefined
}

function placeIn(result: RpcResult, { flow }: Storage, submission: Submission): string | undefined {
  const { logs } = ((result.ok && result.value) || {}) as { logs?: unknown }
  if (!Array.isArray(logs)) return undefined
  for (const log of logs as ({ address?: unknown; topics?: unknown; data?: unknown } | null)[]) {
    if (`${log?.address}`.toLowerCase() !== flow) continue
    const place = placeOf(log, submission)
    if (place !== undefined) return place
  }
  return undefined
}

function placeOf(log: { topics?: unknown; data?: unknown } | null, { data }: Submission): string | undefined {
  try {
    const topics = log?.topics as [Hex, ...Hex[]]
    const { args } = decodeEventLog({ abi: flowAbi, eventName: "Submit", topics, data: log?.data as Hex })
    const rootsOf = (nodes: readonly { root: string; height: bigint }[]) =>
      nodes.map(({ root, height }) => `${root} ${height}`).join()
    const { length, nodes } = args.submission
    if (length !== data.length || rootsOf(nodes) !== rootsOf(data.nodes)) return undefined
    return `${args.submissionIndex} ${args.startPos}`
  } catch {
    // This is another event, or there is no log at all.
    return undefined
  }
}
