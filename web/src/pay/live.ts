/** The live state of a payment: a stream of events, or long-polls where a proxy holds the stream back. */

/** A stream sends its first state at once; one that is silent for so long is held back by something in between. */
const SILENT_MS = 6_000
/** After so long without a state, what the page shows may be wrong. A stream that connects again takes less. */
const LOST_MS = 10_000
const RETRY_MS = 3_000
const MOST_RETRY_MS = 24_000
const WAIT_S = 25
/** After its end a payment may still be paid twice or be reversed: rare, so the page asks and holds no connection. */
const LOOK_MS = 60_000

interface Listener<T> {
  onState: (state: T) => void
  onOffline: (offline: boolean) => void
  /** Whether little can follow this state. */
  isOver: (state: T) => boolean
}

/** What was learned last, and when. */
interface News<T> extends Pick<Listener<T>, "isOver"> {
  heard: (state: T) => void
  lost: () => void
  signal: AbortSignal
}

/**
 * Follows `path` (its `/events`, or else its `/status`) until the returned function is called; `query` is added to both. A
 * hidden page follows nothing: browsers open six connections to a server, and the server a few streams to an address.
 */
export function follow<T>(path: string, query: string, listener: Listener<T>): () => void {
  let ended: AbortController | undefined
  const turn = () => {
    ended?.abort()
    if (document.hidden) return
    ended = new AbortController()
    open(path, query, newsFor(listener, ended.signal))
  }
  document.addEventListener("visibilitychange", turn)
  turn()
  return () => {
    document.removeEventListener("visibilitychange", turn)
    ended?.abort()
  }
}

function newsFor<T>({ onState, onOffline, isOver }: Listener<T>, signal: AbortSignal): News<T> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const stop = () => {
    clearTimeout(timer)
    timer = undefined
  }
  signal.addEventListener("abort", stop)
  return {
    isOver,
    signal,
    lost: () => {
      timer ??= setTimeout(() => onOffline(true), LOST_MS)
    },
    heard: state => {
      stop()
      onOffline(false)
      onState(state)
    },
  }
}

function open<T>(path: string, query: string, news: News<T>): void {
  const { heard, lost, signal } = news
  // Until the first state.
  lost()
  if (typeof EventSource === "undefined") return void poll(path, query, news, 0)
  const stream = new EventSource(`${path}/events${query && `?${query}`}`)
  const giveUp = (pauseMs: number) => {
    clearTimeout(silence)
    stream.close()
    if (!signal.aborted) void poll(path, query, news, pauseMs)
  }
  let silence = setTimeout(giveUp, SILENT_MS, 0)
  stream.onmessage = ({ data }) => {
    clearTimeout(silence)
    heard(JSON.parse(data))
  }
  stream.addEventListener("over", () => giveUp(LOOK_MS))
  stream.onopen = () => {
    clearTimeout(silence)
    silence = setTimeout(giveUp, SILENT_MS, 0)
  }
  stream.onerror = () => {
    clearTimeout(silence)
    lost()
    // Closed: refused by the server. Otherwise the browser connects again by itself.
    if (stream.readyState === EventSource.CLOSED) giveUp(0)
  }
  signal.addEventListener("abort", () => {
    clearTimeout(silence)
    stream.close()
  })
}

async function poll<T>(path: string, query: string, news: News<T>, firstMs: number): Promise<void> {
  const { heard, lost, isOver, signal } = news
  let known = ""
  let pauseMs = firstMs
  while (true) {
    if (pauseMs > 0) await pause(pauseMs, signal)
    if (signal.aborted) return
    try {
      const address = `${path}/status?wait=${known === "" ? 0 : WAIT_S}&known=${known}${query && `&${query}`}`
      const askedAt = Date.now()
      const response = await fetch(address, { signal })
      if (response.status === 429) {
        // Too many pages of this network: less often, as all of them ask.
        pauseMs = Math.min(2 * Math.max(pauseMs, RETRY_MS), MOST_RETRY_MS)
        lost()
        continue
      }
      if (!response.ok) throw new Error(`HTTP ${response.status}`)
      const mark = response.headers.get("x-state") ?? ""
      const state: T = await response.json()
      heard(state)
      // It had no place to wait in, and answered at once.
      const isSame = mark === known && Date.now() - askedAt < RETRY_MS
      pauseMs = isOver(state) ? LOOK_MS : mark === "" || isSame ? RETRY_MS : 0
      known = isOver(state) ? "" : mark
    } catch {
      lost()
      pauseMs = RETRY_MS
    }
  }
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise(resolve => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener("abort", () => {
      clearTimeout(timer)
      resolve()
    })
  })
