/**
 * How pages stay current: the stream says what changed (`stream.ts`). Where it is down they ask again, within the 60 requests a minute
 * that a person has.
 */
import { keepPreviousData, type QueryKey, type UseQueryResult, useQuery } from "@tanstack/react-query"
import { pausedUntil, requestsLeft } from "./client.ts"
import { devState } from "./dev-state.ts"
import { isSandbox } from "./facts.ts"
import { Failure } from "./failure.ts"
import { isLive } from "./stream.ts"

/** A list is asked for this often while it is seen: at most 12 of the 60 requests of a minute. */
const EVERY_MS = 5_000
/** Below so many requests left, what a person does comes first. */
const RESERVE = 15

/** Where the page shows itself as stale for a picture. */
const DEV_EVERY_MS = 500

/** While the stream is up, in case that it missed something. */
const LIVE_EVERY_MS = 60_000

/** When to ask again, in ms. A hidden tab does not ask (react-query's default). */
function nextAsk(): number {
  if (isSandbox && devState() === "stale") return DEV_EVERY_MS
  const wait = pausedUntil.get() - Date.now()
  if (wait > 0) return wait + 500
  if (isLive.get()) return LIVE_EVERY_MS
  return requestsLeft.get() < RESERVE ? EVERY_MS * 3 : EVERY_MS
}

/**
 * Whether a failed read is tried again, and when: after a 429 as long as the server says, after a fault once. What took too long is not:
 * whoever waits has waited enough to be told.
 */
export const retries = {
  retry: (count: number, error: unknown): boolean =>
    error instanceof Failure &&
    (error.status === 429 || (count < 1 && error.code !== "TIMEOUT" && (error.status >= 500 || error.status === 0))),
  retryDelay: (count: number, error: unknown): number =>
    error instanceof Failure && error.status === 429 ? (error.retryAfter ?? 5) * 1_000 + 250 : 600 * 2 ** count,
}

/**
 * A read that is kept current while the page is seen. `keep` shows what was before while another key is read: for a list whose filter
 * changes, never for a thing, as what is shown of one must not stand under the name of another.
 */
export const useLive = <T>(
  key: QueryKey,
  ask: (signal: AbortSignal) => Promise<T>,
  options: { every?: number; enabled?: boolean; keep?: boolean } = {},
): UseQueryResult<T> => {
  // Rendered anew when the stream comes or goes, so that the next question is put off or comes at once.
  isLive.use()
  return useQuery({
    queryKey: key,
    queryFn: ({ signal }) => ask(signal),
    refetchInterval: () => {
      const next = nextAsk()
      return options.every && next !== DEV_EVERY_MS ? Math.max(options.every, next) : next
    },
    enabled: options.enabled ?? true,
    ...(options.keep ? { placeholderData: keepPreviousData } : {}),
    retryOnMount: false,
  })
}
