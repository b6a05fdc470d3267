/** The form of an explanation: why an object is in its state, and what can be done now. Pure. */

/** A possible action. */
export interface NextAction {
  /** An instruction to the merchant, or an event that will happen automatically. */
  text: string
  /** The method and path of the action; null if the API has no request for it. */
  route: string | null
}

/** The explanation of an object's state. */
export interface Standing {
  /** The state's name in the API. */
  state: string
  /** The state in one or two words for people. */
  word: string
  why: string
  /** What can be done now, the best action first; never empty. */
  next: NextAction[]
}

/** An action that is a request to this API. */
export const act = (text: string, method: "GET" | "POST" | "PUT" | "DELETE", path: string): NextAction => ({
  text,
  route: `${method} /api/console/${path}`,
})

/** An action outside this API, or an event that will happen automatically. */
export const wait = (text: string): NextAction => ({ text, route: null })

/** The action when there is nothing to do. */
export const nothing = wait("You don't need to do anything.")

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

/**
 * Formats a time for use in a sentence.
 *
 * @example timeText(new Date("2026-01-31T12:00:00Z")) // "31 Jan 2026, 12:00 UTC"
 */
export function timeText(at: Date): string {
  const time = at.toISOString().slice(11, 16)
  return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}, ${time} UTC`
}
