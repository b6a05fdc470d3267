/**
 * Handles a paid call that is no longer sold: the payer learns what happens to the payment, and the merchant sees it.
 */
import { createHash } from "node:crypto"
import type { FastifyRequest } from "fastify"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Payments } from "./payments.ts"
import { recordFailure } from "./record-failures.ts"

/** What a call's payment is bound to: a request with these bytes to this path, and nothing else. */
export const boundTo = (bundleId: string, method: string, target: string, body: Buffer | undefined): string[] => {
  const hash = createHash("sha256")
  return [bundleId, method, target, hash.update(body ?? "").digest("hex")]
}

/**
 * Throws `INVALID_OPERATION` if the request was paid for but not answered, and records that for the merchant. The
 * origin gets only calls that its merchant sells.
 */
export async function refuseUnsold(
  ctx: Context,
  payments: Payments,
  request: FastifyRequest,
  { slug, path, query, body }: { slug: string; path: string; query: string; body: Buffer | undefined },
): Promise<void> {
  const bundle = await ctx.db.selectFrom("bundles").select("id").where("slug", "=", slug).executeTakeFirst()
  if (!bundle) return
  const { method } = request
  const payment = await payments.unserved(ctx, request, boundTo(bundle.id, method, `${path}${query}`, body))
  if (!payment) return
  const { id, txHash } = payment
  const call = { payment_id: id, bundle_id: bundle.id, method, path: path.slice(0, 2_048) }
  await recordFailure(ctx, { ...call, reason: "did not get this paid call, which is no longer sold" })
  throw new ApiError(
    "INVALID_OPERATION",
    undefined,
    `This call was paid for (${txHash === undefined ? `payment ${id}, still in progress` : `transaction ${txHash}`}), but its merchant no longer sells it. Do not pay again: the merchant sees the payment in its list of failed calls. Ask the merchant for the call or for your money, and name the transaction. If the call is sold again within 24 hours, repeat this request.`,
  )
}
