/** Settles a payment of `charge` through the facilitator, and reports whether it was, or that nobody knows. */

import type { Heard, Service } from "./service.ts"
import type { Payment } from "./wire.ts"

/** The result of a settlement. `unknown`: it may still take effect, so the payer must not pay again. */
export type Settled =
  | { state: "paid"; answer: Record<string, unknown> }
  | { state: "refused"; reason: string; message: string }
  | { state: "unavailable"; message: string }
  | { state: "unknown" }

/** A payment, and the key by which the service repeats its first answer to this request only. */
export interface Settling {
  payment: Payment
  /** The terms in the format of the payment's version. */
  terms: object
  key: string
}

const RETRIES = 2

/** The body of the facilitator's calls. */
export const bodyOf = ({ payment, terms }: Omit<Settling, "key">) => ({
  x402Version: payment.version,
  paymentPayload: payment.payload,
  paymentRequirements: terms,
})

/** Settles a payment. With the same key it may be called again at any time. */
export async function settle(service: Service, settling: Settling): Promise<Settled> {
  const first = await ask(service, settling)
  if (first) return first
  // No answer came. The service stored the payment before it sent it, so ask for its result before answering the buyer.
  const { from, nonce } = settling.payment
  const heard = await service.call(`/x402/settlements/${encodeURIComponent(from)}/${encodeURIComponent(nonce)}`, {
    retries: RETRIES,
  })
  if (heard?.status !== 200) return { state: "unknown" }
  if (heard.body?.status === "failed")
    return { state: "refused", reason: "settlement_failed", message: `${heard.body.message}` }
  // It is settled, or will be. Only the answer to our own key shows that it was not served to another request.
  const again = heard.body?.status === "settled" ? await ask(service, settling) : undefined
  return again ?? { state: "unknown" }
}

/** Undefined if no complete answer came. */
async function ask(service: Service, settling: Settling): Promise<Settled | undefined> {
  const heard = await service.call("/x402/settle", {
    method: "POST",
    body: bodyOf(settling),
    headers: { "idempotency-key": settling.key },
    retries: RETRIES,
  })
  if (!heard?.body) return undefined
  if (heard.status !== 200) return await unsettled(service, settling, heard)
  const { success, errorReason, errorMessage } = heard.body
  if (success === true) return { state: "paid", answer: heard.body }
  if (errorReason === "settlement_pending") return { state: "unknown" }
  return { state: "refused", reason: `${errorReason}`, message: `${errorMessage ?? errorReason}` }
}

/** After an error of the call. If the service does not know the payment, nothing was paid. */
async function unsettled(service: Service, { payment }: Settling, { body }: Heard): Promise<Settled> {
  const heard = await service.call(
    `/x402/settlements/${encodeURIComponent(payment.from)}/${encodeURIComponent(payment.nonce)}`,
    { retries: RETRIES },
  )
  if (heard?.status === 404 || heard?.status === 401 || heard?.status === 403)
    return { state: "unavailable", message: `The payment can't be settled now, and nothing was paid: ${body?.message}` }
  return { state: "unknown" }
}
