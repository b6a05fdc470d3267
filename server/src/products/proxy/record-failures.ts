/** Records, for the merchant, paid calls that failed at an origin. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"

/** The record of a failed call. */
type Failure = Pick<Row<"bundle_failures">, "payment_id" | "bundle_id" | "method" | "path" | "reason">

/** Records that a paid call failed at the origin, whether for the first time or again. */
export async function recordFailure(ctx: Context, failure: Failure): Promise<void> {
  const failed_at = ctx.now()
  await ctx.db
    .insertInto("bundle_failures")
    .values({ ...failure, attempts: 1, failed_at })
    .onConflict(conflict =>
      conflict.column("payment_id").doUpdateSet({
        attempts: sql<number>`bundle_failures.attempts + 1`,
        reason: failure.reason,
        failed_at,
        served_at: null,
      }),
    )
    .execute()
}

/** Records that a repeated call was answered. */
export async function recordServed(ctx: Context, paymentId: string): Promise<void> {
  await ctx.db
    .updateTable("bundle_failures")
    .set({ served_at: ctx.now() })
    .where("payment_id", "=", paymentId)
    .execute()
}
