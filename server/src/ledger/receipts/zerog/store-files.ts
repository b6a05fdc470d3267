/**
 * Uploads the files of receipts whose calls are final, and has the nodes prove that they have the files. A file also
 * stays in our own store, so nothing here is urgent.
 */
import { sql } from "kysely"
import type { Hash } from "../../../platform/chain/hex.ts"
import type { Context } from "../../../platform/context.ts"
import { isDue, postpone, postponeWithAlarm, readFile } from "./read-file.ts"
import { type Place, readSubmitted } from "./read-submitted.ts"
import { uploadFile } from "./send-file.ts"
import type { Storage } from "./storage.ts"
import { submissionOf } from "./submission.ts"

/** The most files that a round uploads. */
const FILES = 16
/** How long the claim of one process keeps others from uploading the same file, even if that process dies. */
const CLAIM_MS = 120_000
/**
 * How long the upload of a file may take. The upload must end before the claim does, because otherwise another process
 * would claim the file.
 */
const UPLOAD_MS = 90_000

interface Paid {
  root: Hash
  tx_hash: Hash
  tries: number
}

/** Runs one round, with `uploadMs` for each file. Returns how many milliseconds the next round may wait. */
export async function storeFilesRound(ctx: Context, storage: Storage, uploadMs = UPLOAD_MS): Promise<number> {
  for (let n = 0; n < FILES && !ctx.signal.aborted; n++) {
    const paid = await claimPaid(ctx, storage)
    if (!paid) break
    await storePaid(ctx, storage, paid, AbortSignal.any([ctx.signal, AbortSignal.timeout(uploadMs)]))
  }
  return ctx.settings.receipts.batchMs
}

/** Claims the next file that is paid for. The call for that file is final, so no reorg removes the payment. */
async function claimPaid(ctx: Context, { chain: { chainId }, flow }: Storage): Promise<Paid | undefined> {
  const until = new Date(ctx.now().getTime() + CLAIM_MS)
  const { rows } = await sql<Paid>`
    update receipt_batches c set storage_run_at = ${until} from (
      select b.root, i.tx_hash, b.storage_tries as tries from receipt_batches b join payouts i on i.id = b.storage_id
      where b.uploaded_at is null and ${isDue(ctx)} and i.state = 'final' and i.chain_id = ${chainId} and i.to_address = ${flow}
      order by b.n limit 1 for no key update of b skip locked) due
    where c.root = due.root returning c.root, due.tx_hash, due.tries`.execute(ctx.db)
  return rows[0]
}

async function storePaid(
  ctx: Context,
  storage: Storage,
  { root, tx_hash, tries }: Paid,
  signal: AbortSignal,
): Promise<void> {
  const file = await readFile(ctx, root)
  if (typeof file === "string") return await postponeWithAlarm(ctx, { root, tries }, file)
  const { bytes, tree } = file
  const submission = submissionOf(tree, bytes.length, storage.flow)
  const place: Place | undefined = await readSubmitted({ ...ctx, signal }, storage, tx_hash, submission)
  const upload = place
    ? await uploadFile({ ...ctx, signal }, storage.indexer, { ...file, ...place })
    : { state: "pending", why: `too few endpoints report the event Submit of ${tx_hash}` }
  if (place && upload.state === "stored") {
    await ctx.db
      .updateTable("receipt_batches")
      .set({ storage_seq: BigInt(place.seq), uploaded_at: ctx.now() })
      .where("root", "=", root)
      .execute()
    return
  }
  await postpone(ctx, root)
  const reason = "why" in upload ? upload.why : undefined
  ctx.log.warn({ root, reason }, "0G does not have this file of receipts yet; storing it is retried")
}
