/** Compares the calldata of the calls that write receipts to the chain with what these calls are for. */
import { sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { anchorData, anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

interface AnchorRow {
  id: string
  to_address: Address
  data: string
  key: string | null
  revoked: string | null
  roots: Hash[]
  prev_root: Hash | null
}

/**
 * Checks those of these payouts that write receipts to the chain, and returns their faults by id. A fault is undefined
 * if the calldata is right.
 */
export async function anchorFaults(
  ctx: TxContext,
  { chainId, depositFactory }: { chainId: number; depositFactory: Address },
  ids: readonly string[],
): Promise<Map<string, string | undefined>> {
  if (ids.length === 0) return new Map()
  const { rows } = await sql<AnchorRow>`
    select i.id, i.to_address, i.data, (select k.id from receipt_keys k where k.anchor_id = i.id) as key,
      (select k.id from receipt_keys k where k.revoke_id = i.id) as revoked,
      (select coalesce(json_agg(b.root order by b.n), '[]'::json) from receipt_batches b where b.anchor_id = i.id) as roots,
      (select b.prev_root from receipt_batches b where b.anchor_id = i.id order by b.n limit 1) as prev_root
    from payouts i where i.id = any(${sqlArray("uuid", ids)}) and i.kind = 'anchor' and i.chain_id = ${chainId}`.execute(
    ctx.db,
  )
  return new Map(
    rows.map(({ id, to_address, data, key, revoked, roots, prev_root }) => {
      const written = key !== null ? { key } : revoked !== null ? { revoked } : { prevRoot: prev_root, roots }
      const isSo = to_address === anchorDeployment.address && data === anchorData(id, depositFactory, written)
      return [id, isSo ? undefined : `the row ${id} of payouts does not write the receipts that it is for`]
    }),
  )
}
