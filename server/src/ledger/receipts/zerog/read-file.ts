/** Reads files of receipts for 0G, and postpones those that can't be uploaded now, so that no file delays another. */
import { hash } from "node:crypto"
import { sql } from "kysely"
import { rootOf, type Tree, treeOf } from "../../../../../verify/src/merkle.ts"
import type { Hash } from "../../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../../platform/context.ts"
import { payoutAlarms } from "../../../platform/metrics.ts"
import { readBatch } from "../store-batches.ts"

/** The first wait before a file is tried again. Each wait is twice the last one, up to the longest. */
const FIRST_WAIT_S = 5
const LONGEST_WAIT_S = 3_600

/** SQL: how long a file `b` waits after a failed try. */
export const waitOf = sql<string>`make_interval(secs => least(${FIRST_WAIT_S} * 2.0 ^ least(b.storage_tries, 16), ${LONGEST_WAIT_S}))`

/** SQL: whether a file `b` may be tried now. */
export const isDue = (ctx: Pick<TxContext, "now">) => sql<boolean>`coalesce(b.storage_run_at <= ${ctx.now()}, true)`

export interface File {
  bytes: Uint8Array
  tree: Tree
}

/**
 * Reads a file with its tree. If the file can't be read, or its bytes do not match its root, returns a sentence about
 * this fault. Never rejects.
 */
export async function readFile(ctx: TxContext, root: Hash): Promise<File | string> {
  try {
    const bytes = await readBatch(ctx, root)
    if (!bytes) return `the file ${root} is not in DATA_DIR/receipts`
    const tree = treeOf(bytes, keccak)
    return rootOf(tree) === root ? { bytes, tree } : `the file ${root} has other bytes than its root says`
  } catch (error) {
    return `the file ${root} can't be read: ${(error as Error).message}`
  }
}

/** Postpones a file: first for 5 seconds, then twice as long each time, up to an hour. */
export async function postpone(ctx: TxContext, root: Hash): Promise<void> {
  await sql`update receipt_batches b set storage_run_at = ${ctx.now()}::timestamptz + ${waitOf}, storage_tries = storage_tries + 1
    where root = ${root}`.execute(ctx.db)
}

/**
 * Postpones a file for a reason that a person must look at. Counts the reason as an alarm, and logs it as an error the
 * first time.
 */
export async function postponeWithAlarm(
  ctx: Context,
  { root, tries }: { root: Hash; tries: number },
  reason: string,
): Promise<void> {
  await postpone(ctx, root)
  payoutAlarms.inc({ network: "0g", wallet: "storage", reason: "receipt_file" })
  const words = "a file of receipts can't be brought to 0G; the others go on"
  if (tries === 0) ctx.log.error({ root, reason }, words)
  else ctx.log.warn({ root, reason }, words)
}

const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")
