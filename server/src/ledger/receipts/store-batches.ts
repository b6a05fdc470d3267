/**
 * The store of batches: each is a file in `DATA_DIR/receipts`, named after its root. The bytes stay in the row until
 * the file is on the disk, so a process may die at any point.
 */
// I/O: reads and writes files.
import { mkdir, open, readFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import type { Hash } from "../../platform/chain/hex.ts"
import { writeFileAtomic } from "../../platform/config/data-dir.ts"
import type { TxContext } from "../../platform/context.ts"

const fileOf = ({ settings }: Pick<TxContext, "settings">, root: Hash): string =>
  join(settings.dataDir, "receipts", root.slice(2, 4), root.slice(2))

/** Copies to the store those batches of a network that only the database has so far. */
export async function storeBatches(ctx: TxContext, chainId: number): Promise<void> {
  for (;;) {
    const batch = await ctx.db
      .selectFrom("receipt_batches")
      .select(["root", "bytes"])
      .where("chain_id", "=", chainId)
      .where("stored_at", "is", null)
      .orderBy("n")
      .limit(1)
      .executeTakeFirst()
    if (!batch?.bytes) return
    const path = fileOf(ctx, batch.root)
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    await writeFileAtomic(path, batch.bytes, 0o600)
    await ctx.db
      .updateTable("receipt_batches")
      .set({ bytes: null, stored_at: ctx.now() })
      .where("root", "=", batch.root)
      .execute()
  }
}

/**
 * Returns the bytes of a batch, or a part of them. Returns undefined if the batch is neither in the store nor in the
 * database.
 */
export async function readBatch(
  ctx: TxContext,
  root: Hash,
  part?: { offset: number; length: number },
): Promise<Uint8Array | undefined> {
  const stored = await readStored(fileOf(ctx, root), part)
  if (stored) return stored
  const rows = ctx.db.selectFrom("receipt_batches").select("bytes").where("root", "=", root)
  const { bytes } = (await rows.executeTakeFirst()) ?? {}
  return bytes ? (part ? bytes.subarray(part.offset, part.offset + part.length) : bytes) : undefined
}

async function readStored(
  path: string,
  part: { offset: number; length: number } | undefined,
): Promise<Uint8Array | undefined> {
  try {
    if (!part) return await readFile(path)
    const file = await open(path)
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(part.length), 0, part.length, part.offset)
      return bytesRead === part.length ? buffer : undefined
    } finally {
      await file.close()
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}
