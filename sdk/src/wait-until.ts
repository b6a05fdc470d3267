/** Waits for a checkout, without a webhook. */
import type { Checkout, CheckoutStatus } from "../../tools/openapi/api.d.ts"
import { SluiceError } from "./errors.ts"
import { pause } from "./pause.ts"
import type { RequestOptions } from "./request.ts"
import type { Resources } from "./resources.ts"

/** Waits until the checkout `id` has one of the statuses; 10 minutes by default. */
export type WaitUntil = (
  id: string,
  wanted: { status: CheckoutStatus | readonly CheckoutStatus[]; timeoutMs?: number; signal?: AbortSignal },
) => Promise<Checkout>

const TIMEOUT_MS = 600_000
/** How long the service holds a request that waits. */
const WAIT_S = 25
/** A service without a free place answers immediately. */
const MIN_PAUSE_MS = 2_000

/** Creates the {@link WaitUntil} of a client. */
export function waitUntil(client: Pick<Resources, "pay" | "checkouts">): WaitUntil {
  return async (id, { status, timeoutMs = TIMEOUT_MS, signal }) => {
    const wanted = [status].flat() as readonly string[]
    const endsAt = Date.now() + timeoutMs
    const options: RequestOptions = signal ? { signal } : {}
    for (let isFirst = true; ; isFirst = false) {
      const askedAt = Date.now()
      const leftS = Math.floor((endsAt - askedAt) / 1_000)
      const wait = isFirst ? 0 : Math.min(WAIT_S, Math.max(0, leftS))
      const now = await client.pay.status(id, { wait }, options)
      if (wanted.includes(now.status)) return await client.checkouts.get(id, options)
      if (Date.now() >= endsAt)
        throw new SluiceError(
          `The checkout ${id} is ${now.status}, and not ${wanted.join(" or ")}, after ${timeoutMs} ms.`,
          {
            code: "TIMEOUT",
            docUrl: "",
          },
        )
      if (!isFirst) await pause(Math.max(0, Math.min(askedAt + MIN_PAUSE_MS, endsAt) - Date.now()), signal)
    }
  }
}
