/** The payments that wait for a decision: the count beside "Needs you", and that page's list. */
import { useRouterState } from "@tanstack/react-router"
import { GET, taken } from "./client.ts"
import { useLive } from "./live.ts"
import { newStore } from "./store.ts"
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

/** What Home's figures say, which count them too. */
export const countAtHome = newStore<number | undefined>(undefined)

/** How many payments wait; undefined before it is known. Home has it from its own request. */
export function useNeedsCount(): number | undefined {
  const isHome = useRouterState({ select: ({ location }) => location.pathname === "/" })
  const atHome = countAtHome.use()
  const { data } = useLive([...needsKey], signal => askNeeds(undefined, signal), {
    every: HALF_A_MINUTE,
    enabled: !isHome,
  })
  return isHome ? (atHome ?? data?.total) : data?.total
}
