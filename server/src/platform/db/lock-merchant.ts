/** The lock of a merchant's row. */
import type { Db } from "./open.ts"

/**
 * Locks a merchant's row until the transaction ends, so that changes of its settings, keys or webhooks run one after
 * the other.
 */
export async function lockMerchant(db: Db, merchantId: string): Promise<void> {
  await db.selectFrom("merchants").select("id").where("id", "=", merchantId).forNoKeyUpdate().execute()
}
