/**
 * The page in a frame on a merchant's site: which site may talk to it, and what it reports. The browser shows the page
 * in no other frame (`frame-ancestors`). Messages are checked again, because any window can send them.
 */

/** Whether the page is in a frame. */
export const isEmbedded = window.parent !== window

/** Links to other pages open in a new tab, not in the frame. */
export const newTab = isEmbedded ? "_blank" : undefined

/** The origin of the site around the frame, once it has sent its greeting. */
let site: string | undefined
let paid: string | undefined

const say = (type: "ready" | "paid" | "close", id?: string): void => {
  // Sent only to this origin, because another site may have replaced the one around the frame.
  if (site !== undefined)
    window.parent.postMessage({ type: `sluice:${type}`, ...(id === undefined ? {} : { id }) }, site)
}

/** Answers the greeting of an allowed site, and notifies that site from then on. Other messages are ignored. */
export function answerSite(allowedOrigins: readonly string[]): void {
  if (!isEmbedded) return
  addEventListener("message", ({ source, origin, data }) => {
    if (source !== window.parent || !allowedOrigins.includes(origin) || data?.type !== "sluice:hello") return
    site = origin
    say("ready")
    if (paid !== undefined) say("paid", paid)
  })
  // A key pressed inside the frame does not reach the dialog around it.
  addEventListener("keydown", event => {
    if (event.key === "Escape") say("close")
  })
}

/** Notifies the site around the frame that this checkout or paywall was paid: immediately, or after its greeting. */
export function notifyPaid(id: string): void {
  paid = id
  say("paid", id)
}
