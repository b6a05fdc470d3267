/** The form of an explanation: why something stands as it does, and what can be done now. Pure. */

/** One thing that can be done. */
export interface NextAction {
  /** As an order to the merchant, or as what happens by itself. */
  text: string
  /** The method and path that do it; null where nothing of this API does. */
  route: string | null
}

/** Why something stands as it does. */
export interface Standing {
  /** The API's own word for the state. */
  state: string
  /** The same in one or two words for people. */
  word: string
  why: string
  /** What can be done now, the best first. Never empty. */
  next: NextAction[]
}

/** Something that can be done by a request. */
export const act = (text: string, method: "GET" | "POST" | "PUT" | "DELETE", path: string): NextAction => ({
  text,
  route: `${method} /api/console/${path}`,
})

/** Something that is done elsewhere, or that happens by itself. */
export const wait = (text: string): NextAction => ({ text, route: null })

/** The action of whoever has nothing to do. */
export const nothing = wait("You need to do nothing.")

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

/**
 * A time in a sentence.
 *
 * @example timeText(new Date("2026-01-31T12:00:00Z")) // "31 Jan 2026, 12:00 UTC"
 */
export function timeText(at: Date): string {
  const time = at.toISOString().slice(11, 16)
  return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}, ${time} UTC`
}
