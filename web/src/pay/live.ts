/** The live state of a payment: a stream of events, or long-polls if a proxy buffers the stream. */

/** A stream sends its first state immediately. If it is silent for this long, a proxy on the way is buffering it. */
const SILENT_MS = 6_000
/**
 * After the first state, an event arrives every ten seconds. After three times that, a proxy no longer passes the
 * stream on.
 */
const DEAD_MS = 30_000
/** A network that drops packets answers nothing, not even an error. */
const ANSWER_MS = 10_000
/** After this time without a state, the page may be out of date. A stream reconnects faster than that. */
const LOST_MS = 10_000
const RETRY_MS = 3_000
const MAX_RETRY_MS = 24_000
const WAIT_S = 25
/** A proxy may ask for any pause. This is the longest that is respected. */
const MAX_WAIT_MS = 3_600_000
/**
 * After its end a payment may still be paid twice or reversed. That is rare, so the page polls and holds no connection.
 */
const LOOK_MS = 60_000

/** No state can be read now. `until` is when the page asks again, in milliseconds, if the server gave a time. */
export interface Offline {
  until?: number
}

interface Listener<T> {
  onState: (state: T) => void
  onOffline: (offline: Offline | undefined) => void
  /** Whether little more can happen after this state. */
  isOver: (state: T) => boolean
  /** When the last state arrived, in milliseconds. */
  heardAt: () => number
}

/** Receives the states from the stream or the polls. */
interface News<T> extends Pick<Listener<T>, "isOver"> {
  heard: (state: T) => void
  /** No state arrived just now, so the page may soon be out of date. */
  lost: () => void
  /** No state has arrived, or will arrive, for longer than that. */
  silent: (offline: Offline) => void
  signal: AbortSignal
}

/**
 * Follows `path` (its `/events`, or else its `/status`) until the returned function is called; `query` is added to
 * both. A hidden page follows nothing, because browsers open six connections to a server, and the server opens few
 * streams to an address.
 */
export function follow<T>(path: string, query: string, listener: Listener<T>): () => void {
  let ended: AbortController | undefined
  const turn = () => {
    ended?.abort()
    if (document.hidden) return
    // The state from before the page was hidden may be out of date, so nobody is asked for money meanwhile.
    if (Date.now() - listener.heardAt() > LOST_MS) listener.onOffline({})
    ended = new AbortController()
    open(path, query, newsFor(listener, ended.signal))
  }
  const back = ({ persisted }: PageTransitionEvent) => persisted && turn()
  document.addEventListener("visibilitychange", turn)
  addEventListener("pageshow", back)
  turn()
  return () => {
    document.removeEventListener("visibilitychange", turn)
    removeEventListener("pageshow", back)
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
      timer ??= setTimeout(() => onOffline({}), LOST_MS)
    },
    silent: offline => {
      stop()
      if (!signal.aborted) onOffline(offline)
    },
    heard: state => {
      // It was requested before the current follower started, which may have received a newer one.
      if (signal.aborted) return
      stop()
      onOffline(undefined)
      onState(state)
    },
  }
}

function open<T>(path: string, query: string, news: News<T>): void {
  const { heard, lost, silent, signal } = news
  // Until the first state arrives.
  lost()
  if (typeof EventSource === "undefined") return void poll(path, query, news, 0)
  const stream = new EventSource(`${path}/events${query && `?${query}`}`)
  const giveUp = (pauseMs: number) => {
    clearTimeout(silence)
    stream.close()
    if (!signal.aborted) void poll(path, query, news, pauseMs)
  }
  let silence = setTimeout(giveUp, SILENT_MS, 0)
  const alive = () => {
    clearTimeout(silence)
    silence = setTimeout(() => {
      silent({})
      giveUp(0)
    }, DEAD_MS)
  }
  stream.onmessage = ({ data }) => {
    alive()
    heard(JSON.parse(data))
  }
  stream.addEventListener("beat", alive)
  stream.addEventListener("over", () => giveUp(LOOK_MS))
  stream.onopen = () => {
    clearTimeout(silence)
    silence = setTimeout(giveUp, SILENT_MS, 0)
  }
  stream.onerror = () => {
    clearTimeout(silence)
    lost()
    // Closed means that the server refused. Otherwise the browser reconnects automatically.
    if (stream.readyState === EventSource.CLOSED) giveUp(0)
  }
  signal.addEventListener("abort", () => {
    clearTimeout(silence)
    stream.close()
  })
}

async function poll<T>(path: string, query: string, news: News<T>, firstMs: number): Promise<void> {
  const { heard, lost, silent, isOver, signal } = news
  let known = ""
  let pauseMs = firstMs
  while (true) {
    if (pauseMs > 0) await pause(pauseMs, signal)
    if (signal.aborted) return
    try {
      const waitS = known === "" ? 0 : WAIT_S
      const address = `${path}/status?wait=${waitS}&known=${known}${query && `&${query}`}`
      const askedAt = Date.now()
      const response = await ask(address, waitS * 1_000 + ANSWER_MS, signal)
      if (response.status === 429) {
        const waitMs = waitOf(response)
        // Too many pages of this network are open, and they all ask, so ask less often.
        pauseMs = Math.max(waitMs, Math.min(2 * Math.max(pauseMs, RETRY_MS), MAX_RETRY_MS))
        if (waitMs > LOST_MS) silent({ until: Date.now() + waitMs })
        else lost()
        continue
      }
      if (!response.ok) throw new Error(`HTTP ${response.status}`)
      const mark = response.headers.get("x-state") ?? ""
      const state: T = await response.json()
      heard(state)
      // The server had no free place to wait, and answered immediately.
      const isSame = mark === known && Date.now() - askedAt < RETRY_MS
      pauseMs = isOver(state) ? LOOK_MS : mark === "" || isSame ? RETRY_MS : 0
      known = isOver(state) ? "" : mark
    } catch (error) {
      if ((error as Error).name === "AbortError") silent({})
      else lost()
      pauseMs = RETRY_MS
    }
  }
}

/** Milliseconds to wait before the next request, as the server asked; 0 if it did not. */
function waitOf({ headers }: Response): number {
  const text = headers.get("retry-after") ?? ""
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - Date.now()
  return ms > 0 ? Math.min(ms, MAX_WAIT_MS) : 0
}

/** A request that fails after `ms` without an answer. */
async function ask(address: string, ms: number, signal: AbortSignal): Promise<Response> {
  const stop = new AbortController()
  const end = () => stop.abort()
  const timer = setTimeout(end, ms)
  signal.addEventListener("abort", end)
  try {
    const response = await fetch(address, { signal: stop.signal })
    // Reads the whole body, because a network can also stop in the middle.
    return new Response(await response.blob(), response)
  } finally {
    clearTimeout(timer)
    signal.removeEventListener("abort", end)
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
