/** The live state of a payment: a stream of events, or long-polls where a proxy holds the stream back. */

/** A stream sends its first state at once; one that is silent for so long is held back by something in between. */
const SILENT_MS = 6_000
const RETRY_MS = 3_000
const MOST_RETRY_MS = 24_000
const WAIT_S = 25

interface Listener<T> {
  onState: (state: T) => void
  onOffline: (offline: boolean) => void
}

/**
 * Follows `path` (its `/events`, or else its `/status`) until the returned function is called; `query` is added to both.
 */
export function follow<T>(path: string, query: string, { onState, onOffline }: Listener<T>): () => void {
  const ended = new AbortController()
  let stream: EventSource | undefined
  const poll = async () => {
    let known = ""
    let pauseMs = RETRY_MS
    while (!ended.signal.aborted)
      try {
        const address = `${path}/status?wait=${known === "" ? 0 : WAIT_S}&known=${known}${query && `&${query}`}`
        const askedAt = Date.now()
        const response = await fetch(address, { signal: ended.signal })
        // The server can be reached, and has too many pages of this network: less often, as all of them do so.
        const isRefused = response.status === 429
        pauseMs = isRefused ? Math.min(2 * pauseMs, MOST_RETRY_MS) : RETRY_MS
        if (isRefused) {
          await pause(pauseMs, ended.signal)
          continue
        }
        if (!response.ok) throw new Error(`HTTP ${response.status}`)
        const mark = response.headers.get("x-state") ?? ""
        // It had no place to wait in, and answered at once.
        const isSame = mark === known && Date.now() - askedAt < RETRY_MS
        known = mark
        onOffline(false)
        onState(await response.json())
        if (known === "" || isSame) await pause(RETRY_MS, ended.signal)
      } catch {
        if (ended.signal.aborted) return
        onOffline(true)
        await pause(RETRY_MS, ended.signal)
      }
  }
  const listen = () => {
    stream = new EventSource(`${path}/events${query && `?${query}`}`)
    const giveUp = () => {
      stream?.close()
      stream = undefined
      if (!ended.signal.aborted) void poll()
    }
    let silence = setTimeout(giveUp, SILENT_MS)
    stream.onmessage = ({ data }) => {
      clearTimeout(silence)
      onOffline(false)
      onState(JSON.parse(data))
    }
    stream.addEventListener("over", () => stream?.close())
    stream.onopen = () => {
      clearTimeout(silence)
      silence = setTimeout(giveUp, SILENT_MS)
    }
    stream.onerror = () => {
      clearTimeout(silence)
      // Closed: refused by the server. Otherwise the browser connects again by itself.
      if (stream?.readyState === EventSource.CLOSED) giveUp()
      else onOffline(true)
    }
    ended.signal.addEventListener("abort", () => clearTimeout(silence))
  }
  if (typeof EventSource === "undefined") void poll()
  else listen()
  return () => {
    ended.abort()
    stream?.close()
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
