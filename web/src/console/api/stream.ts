/**
 * The stream of changes. One tab of the browser holds it and shares it with the others; where it is down, pages ask again as before.
 */
import { chosenMerchant } from "./client.ts"
import { newStore } from "./store.ts"

/** A change of an object, with its row of a list where that is small enough. */
export interface Change {
  id: string
  kind: string
  objectId: string
  row: Record<string, unknown> | null
}

type Message = { type: "change"; change: Change } | { type: "reset" } | { type: "state"; isUp: boolean }

/** Whether changes come by themselves now. */
export const isLive = newStore(false)

/** The tab with the stream says that it is up so often. */
const SAID_MS = 5_000
/** A tab that heard nothing for so long asks by itself. */
const SILENT_MS = 12_000
/** A stream that the server refused, as a sixth one, is tried again after this. */
const REFUSED_MS = 30_000

/**
 * Follows the changes of the chosen merchant until the returned function is called. `onChange` gets each; `onReset` means that some may
 * be missing.
 */
export function followChanges(onChange: (change: Change) => void, onReset: () => void): () => void {
  const merchant = chosenMerchant.get()
  const name = `sluice-changes-${merchant ?? ""}`
  // Without locks (a page of plain http) each tab would hold a stream: then none does.
  if (!("locks" in navigator) || !("BroadcastChannel" in globalThis)) return () => undefined
  const channel = new BroadcastChannel(name)
  const over = new AbortController()
  let last: string | undefined
  let heardAt = 0
  const take = (message: Message): void => {
    heardAt = Date.now()
    isLive.set(message.type !== "state" || message.isUp)
    if (message.type === "reset") onReset()
    if (message.type !== "change") return
    last = message.change.id
    onChange(message.change)
  }
  const say = (message: Message): void => {
    channel.postMessage(message)
    take(message)
  }
  channel.onmessage = ({ data }) => take(data as Message)
  const watch = setInterval(() => Date.now() - heardAt > SILENT_MS && isLive.set(false), SAID_MS)
  const hold = () => holdStream({ merchant, after: () => last, say, signal: over.signal })
  navigator.locks.request(name, { signal: over.signal }, hold).catch(() => undefined)
  return () => {
    over.abort()
    clearInterval(watch)
    channel.close()
    isLive.set(false)
  }
}

interface Held {
  merchant: string | null
  /** The last change that this browser has seen. */
  after: () => string | undefined
  say: (message: Message) => void
  signal: AbortSignal
}

/** Keeps the stream open; a browser connects again by itself, but not after a refusal. */
function holdStream({ merchant, after, say, signal }: Held): Promise<void> {
  let source: EventSource | undefined
  let again: ReturnType<typeof setTimeout> | undefined
  const open = () => {
    const query = new URLSearchParams()
    if (merchant !== null) query.set("merchant", merchant)
    const from = after()
    if (from !== undefined) query.set("after", from)
    source = new EventSource(`/api/console/stream?${query}`)
    source.addEventListener("ready", () => say({ type: "state", isUp: true }))
    source.addEventListener("reset", () => say({ type: "reset" }))
    source.addEventListener("change", ({ data }) => say({ type: "change", change: JSON.parse(data) }))
    source.addEventListener("error", () => {
      say({ type: "state", isUp: false })
      if (source?.readyState === EventSource.CLOSED) again = setTimeout(open, REFUSED_MS)
    })
  }
  open()
  const beat = setInterval(() => say({ type: "state", isUp: source?.readyState === EventSource.OPEN }), SAID_MS)
  return new Promise(resolve =>
    signal.addEventListener("abort", () => {
      clearInterval(beat)
      clearTimeout(again)
      source?.close()
      resolve()
    }),
  )
}
