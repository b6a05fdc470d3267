/**
 * The page in a frame of a merchant's site: which site may speak with it, and what it says. The browser shows it nowhere else
 * (`frame-ancestors`); messages are checked again, as any window can send them.
 */

/** Whether the page is in a frame. */
export const isEmbedded = window.parent !== window

/** Where links to other pages open: not in the frame. */
export const newTab = isEmbedded ? "_blank" : undefined

/** The origin of the site around, once it has made itself known. */
let site: string | undefined
let paid: string | undefined

const say = (type: "ready" | "paid" | "close", id?: string): void => {
  // To this origin alone: the site around may have been replaced by another one.
  if (site !== undefined)
    window.parent.postMessage({ type: `sluice:${type}`, ...(id === undefined ? {} : { id }) }, site)
}

/** Answers the greeting of a site that is allowed, and from then on notifies it. Other messages are ignored. */
export function answerSite(allowedOrigins: readonly string[]): void {
  if (!isEmbedded) return
  addEventListener("message", ({ source, origin, data }) => {
    if (source !== window.parent || !allowedOrigins.includes(origin) || data?.type !== "sluice:hello") return
    site = origin
    say("ready")
    if (paid !== undefined) say("paid", paid)
  })
  // A key that is pressed in the frame does not reach the dialog around it.
  addEventListener("keydown", event => {
    if (event.key === "Escape") say("close")
  })
}

/** Notifies the site around that this checkout or paywall was paid; at once, or when it makes itself known. */
export function notifyPaid(id: string): void {
  paid = id
  say("paid", id)
}
