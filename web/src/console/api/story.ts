/** One payment, checkout or payout, and its story. */
import { useQuery } from "@tanstack/react-query"
import { read } from "./client.ts"
import { retries, useLive } from "./live.ts"
import type { Checkout, Page, Transaction } from "./types.ts"

/** What can be done now; `route` is a method and a path, or null. */
export interface NextAction {
  text: string
  route: string | null
}

interface Standing {
  state: string
  word: string
  why: string
  next: NextAction[]
}

export interface StoryEntry {
  at: string
  kind: string
  text: string
  actor?: { kind: string; id: string | null }
  txHash: string | null
  object: string | null
}

export interface Story {
  data: StoryEntry[]
  status: Standing
}

export const isCheckoutId = (id: string): boolean => id.startsWith("cs_")

/** The story is read again every five seconds while it is seen. */
export const useStory = (id: string) =>
  useLive(["story", id], signal => read<Story>(`/api/console/timeline/${id}`, {}, signal))

export const useCheckout = (id: string | null | undefined) =>
  useLive(["checkout", id], signal => read<Checkout>(`/api/console/checkouts/${id}`, {}, signal), {
    enabled: typeof id === "string",
    every: 10_000,
  })

/** A movement by its id. */
export const useTransaction = (id: string, enabled: boolean) =>
  useQuery({
    queryKey: ["transaction", id],
    queryFn: async ({ signal }) => {
      const { data } = await read<Page<Transaction>>("/api/console/transactions", { q: id, limit: 10 }, signal)
      return data.find(row => row.id === id) ?? data[0] ?? null
    },
    enabled,
    refetchInterval: 10_000,
    ...retries,
  })
