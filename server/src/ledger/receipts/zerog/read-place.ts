/** Finds where the receipt of a payment is in 0G's storage, as events report it. SQL only. */
import { sql } from "kysely"
import type { Hash } from "../../../platform/chain/hex.ts"
import type { TxContext } from "../../../platform/context.ts"

/** The field `zeroG` of an event. */
export interface ZeroG {
  storageUri: string
  storageRoot: Hash
  /**
   * The hash of the signed transaction. If the transaction's fee is raised, another transaction with the same nonce may
   * be mined.
   */
  storageTxHash: Hash
  /**
   * The hash of the transaction that writes the root to the payment's chain. Null until that transaction is mined, or
   * if roots are not written to that chain.
   */
  anchorTxHash: Hash | null
}

/**
 * Returns where 0G keeps the payment's newest receipt. Undefined until the transaction that pays 0G for that file is
 * signed. Also undefined while that transaction must be replaced, because one that reverted or was cancelled stores
 * nothing.
 */
export async function zerogOf(ctx: TxContext, paymentId: string): Promise<ZeroG | undefined> {
  const { rows } = await sql<{
    root: Hash | null
    offset: number
    length: number
    stored: Hash | null
    anchored: Hash | null
  }>`
    select r.root, r.byte_offset as offset, r.byte_length as length, (select i.tx_hash from payouts i where i.id = b.anchor_id) as anchored,
      (select coalesce(i.tx_hash, (select a.hash from transaction_attempts a
          where a.payout_id = i.id and a.hash is not null order by a.n desc limit 1))
        from payouts i where i.id = b.storage_id and i.state in ('assigned', 'mined', 'final')) as stored
    from receipts r left join receipt_batches b on b.root = r.root
    where r.about = ${paymentId} and r.type = 'payment' order by r.n desc limit 1`.execute(ctx.db)
  const [row] = rows
  const { root, offset, length, stored, anchored } = row ?? { root: null, stored: null }
  if (root === null || stored === null) return undefined
  const storageUri = `0g://${root}?o=${offset}&l=${length}`
  return { storageUri, storageRoot: root, storageTxHash: stored, anchorTxHash: anchored }
}
