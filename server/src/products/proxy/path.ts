/**
 * Reads the paths of proxied requests. A path is parsed once: its parts match the route, and the same parts form the
 * path for the origin. So an origin never receives another path than the paid one. Pure.
 */

/** A path that can be read in only one way. */
export interface Path {
  /** Decoded parts. The last one is empty if the path ends with a slash. */
  parts: readonly string[]
  /** The path in the only spelling that this file writes; starts with a slash. */
  text: string
}

/** Matches text of the characters of a path or query: visible ASCII. */
const VISIBLE = /^[!-~]*$/

/**
 * Parses a path that starts with a slash, or returns what is wrong as a clause whose subject is the path. Refuses
 * everything that two servers may read differently: empty parts (`//`), `.` and `..`, also before a `;`, and slashes,
 * backslashes and control characters in any encoding.
 *
 * @example readPath("/users/%61nna") // { parts: ["users", "anna"], text: "/users/anna" }
 */
export function readPath(raw: string): Path | string {
  if (!raw.startsWith("/")) return "must start with a slash"
  if (!VISIBLE.test(raw) || /[?#\\]/.test(raw)) return "must be percent-encoded, without `\\` or `#`"
  const encoded = raw.slice(1).split("/")
  const parts: string[] = []
  for (const [i, each] of encoded.entries()) {
    if (each === "" && i < encoded.length - 1) return "must not have an empty part (`//`)"
    const part = decoded(each)
    if (part === undefined) return "must be percent-encoded UTF-8"
    // Some servers decode twice, so a part must not contain these even after a second decoding.
    if (/[/\\\p{Cc}]|%(2f|5c|2e|00)/iu.test(part))
      return "must not have an encoded slash, backslash, dot or control character"
    if (/^\.{1,2}(;|$)/.test(part)) return "must not have `.` or `..` as a part"
    parts.push(part)
  }
  return { parts, text: `/${parts.map(written).join("/")}` }
}

/**
 * The path and query in a request's URL after `/api/p/{slug}`; undefined if the URL can be split in more than one
 * way.
 */
export function splitUrl(url: string): { path: string; query: string } | undefined {
  const [, path = "", query = ""] = /^([^?]*)(\?.*)?$/s.exec(url) ?? []
  // The first four parts are "", "api", "p" and the slug. The router matched them by their decoded text.
  const [before, , , slug, ...rest] = path.split("/")
  if (before !== "" || !slug || rest.length === 0 || !VISIBLE.test(query) || query.includes("#")) return undefined
  return { path: `/${rest.join("/")}`, query }
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part)
  } catch {
    return undefined
  }
}

/** The characters that `encodeURIComponent` encodes although a part of a path may contain them (RFC 3986, `pchar`). */
const plain: Record<string, string> = {
  "%24": "$",
  "%26": "&",
  "%2B": "+",
  "%2C": ",",
  "%3A": ":",
  "%3B": ";",
  "%3D": "=",
  "%40": "@",
}

const written = (part: string): string =>
  encodeURIComponent(part).replace(/%(?:2[46BC]|3[ABD]|40)/g, code => plain[code] ?? code)
