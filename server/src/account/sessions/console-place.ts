/** Where the console is, and the cookies by which it recognizes a browser. Pure. */
import type { Settings } from "../../platform/config/settings.ts"
import { isLoopbackHost } from "../../platform/http/hosts.ts"

type Places = Pick<Settings, "consoleUrl" | "baseUrl">

/**
 * Where a Host leads. `here`: the console. `moved`: the console is at `CONSOLE_URL`. `plain`: neither https nor
 * loopback, so the cookie could be read in transit. `elsewhere`: nothing.
 */
export type Place = "here" | "moved" | "plain" | "elsewhere"

/** Resolves the Host of a console request. */
export function placeOf({ consoleUrl, baseUrl }: Places, host: string | undefined): Place {
  const own = new URL(consoleUrl)
  const given = host?.toLowerCase()
  if (own.protocol === "https:") {
    const { host: base } = new URL(baseUrl)
    // If one host serves everything, a proxy may send any Host.
    if (own.host === base || own.host === given) return "here"
    return given === base ? "moved" : "elsewhere"
  }
  if (!isLoopbackHost(given) || !isLoopbackHost(own.host)) return "plain"
  return own.host === given ? "here" : "moved"
}

/** The origin of the console, as browsers write it. */
export const consoleOrigin = ({ consoleUrl }: Places): string => new URL(consoleUrl).origin

/** Whether the console's cookies are sent only over https. */
export const isSecure = ({ consoleUrl }: Places): boolean => consoleUrl.startsWith("https:")

/**
 * The cookie names of a session and of a started sign-in. Over https, no other host can set these cookies, and browsers
 * accept them only over https.
 */
export const cookieNames = (places: Places): { session: string; signIn: string } =>
  isSecure(places)
    ? { session: "__Host-sluice", signIn: "__Host-sluice-sign-in" }
    : { session: "sluice-dev", signIn: "sluice-dev-sign-in" }

/** The longest return path, in characters. */
const RETURN_CHARACTERS = 2_000

/**
 * The path to open after a sign-in, if it is `/console` or below it. Undefined otherwise, and for any text that a
 * browser would read as another site's address.
 */
export function returnPath(text: unknown): string | undefined {
  if (typeof text !== "string" || text.length > RETURN_CHARACTERS) return undefined
  if (!/^\/console(?=[/?#]|$)[\x21-\x7e]*$/.test(text) || /\\|\/\//.test(text)) return undefined
  const { pathname, search, hash } = new URL(text, "https://console.invalid")
  // Resolved like a browser does: `/console/../api` is not below `/console`.
  return /^\/console(\/|$)/.test(pathname) ? `${pathname}${search}${hash}` : undefined
}
