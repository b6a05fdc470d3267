/** The payments that wait for a decision: the count beside "Needs you", and that page's list. */
import { GET, taken } from "./client.ts"
import { useLive } from "./live.ts"
import type { Page, Payment } from "./types.ts"

const HALF_A_MINUTE = 30_000

export const needsKey = ["needs"] as const

export const askNeeds = (after: string | undefined, signal: AbortSignal): Promise<Page<Payment>> =>
  taken(
    GET("/api/console/payments", {
      params: { query: { status: "open", limit: 50, ...(after ? { after } : {}) } },
      signal,
    }),
  ) as Promise<Page<Payment>>

/** How many payments wait; undefined before it is known. */
export function useNeedsCount(): number | undefined {
  return useLive([...needsKey], signal => askNeeds(undefined, signal), { every: HALF_A_MINUTE }).data?.total
}
