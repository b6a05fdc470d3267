/** The payments that wait for a decision: the count beside "Needs you", and that page's list. */
import { useRouterState } from "@tanstack/react-router"
import { GET, taken } from "./client.ts"
import { useLive } from "./live.ts"
import { newStore } from "./store.ts"
import type { Page, Payment } from "./types.ts"

const HALF_A_MINUTE = 30_000

export const needsKey = ["needs"] as const

export const askNeeds = (part: { limit: number; after?: string }, signal: AbortSignal): Promise<Page<Payment>> =>
  taken(GET("/api/console/payments", { params: { query: { status: "open", ...part } }, signal })) as Promise<
    Page<Payment>
  >

/** What the figures of the overview say, which count them too. */
export const countInFigures = newStore<number | undefined>(undefined)

/** The pages that read the overview. */
const withFigures: ReadonlySet<string> = new Set(["/", "/subscriptions"])

/** How many payments wait; undefined before it is known. Pages with figures have it from those. */
export function useNeedsCount(): number | undefined {
  const isCounted = useRouterState({ select: ({ location }) => withFigures.has(location.pathname) })
  const counted = countInFigures.use()
  const { data } = useLive([...needsKey], signal => askNeeds({ limit: 50 }, signal), {
    every: HALF_A_MINUTE,
    enabled: !isCounted,
  })
  return isCounted ? (counted ?? data?.total) : data?.total
}
