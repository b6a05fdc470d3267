/**
 * Paid calls between their payment and their answer. A payment counts as served before its call is forwarded, so that no other
 * request can be; where the process is killed in between, nobody was answered, and the payment is released.
 */
import { sql } from "kysely"
import type { Context } from "../context.ts"

/** Longer than everything around a forwarded request takes, so that a lease outlives its call. */
const MARGIN_MS = 60_000

/** Records that a paid call is forwarded from now on. */
export async function beginCall({ db, settings }: Context, paymentId: string): Promise<void> {
  const lease = sql<Date>`clock_timestamp() + make_interval(secs => ${(settings.originTimeoutMs + MARGIN_MS) / 1_000})`
  await db
    .insertInto("calls_in_progress")
    .values({ payment_id: paymentId, lease_until: lease })
    .onConflict(conflict => conflict.column("payment_id").doUpdateSet({ lease_until: lease }))
    .execute()
}

/** Records that it was forwarded; false where its lease expired, and another request may serve the payment. */
export async function endCall({ db, now }: Context, paymentId: string): Promise<boolean> {
  const ended = await db.deleteFrom("calls_in_progress").where("payment_id", "=", paymentId).executeTakeFirst()
  if (ended.numDeletedRows === 0n) return false
  // However long its answer streams from here on, the call was made.
  await db.updateTable("settlements").set({ answered_at: now() }).where("id", "=", paymentId).execute()
  return true
}

/** Releases the payment of a call that nobody was answered: the same payment, sent again, is served. */
export async function releaseCall({ db, now }: Context, paymentId: string): Promise<void> {
  const released = { served_at: null, answered_at: null, claim_id: null, lease_until: null, updated_at: now() }
  await db.updateTable("settlements").set(released).where("id", "=", paymentId).execute()
}

/** Releases the payments of calls whose process was killed: the same payment, sent again, is served. */
export async function releaseLostCalls({ db, log, now }: Context): Promise<void> {
  const { rows } = await sql<{ id: string }>`
    with lost as (delete from calls_in_progress where lease_until < clock_timestamp() returning payment_id)
    update settlements set served_at = null, answered_at = null, claim_id = null, lease_until = null, updated_at = ${now()}
      where id in (select payment_id from lost) returning id`.execute(db)
  for (const { id } of rows)
    log.warn({ settlementId: id }, "a paid call ended with its process; its payment is released")
}
