/**
 * Paths of proxied requests. A path is parsed once. Its parts match the route, and the same parts form the path for the
 * origin. An origin therefore never receives another path than the paid one. Pure.
 */

/** A path with only one possible meaning. */
export interface Path {
  /** Decoded. The last part is empty if the path ends with a slash. */
  parts: readonly string[]
  /** The path in this file's single spelling; starts with a slash. */
  text: string
}

/** The characters of a path or query: visible ASCII. */
const VISIBLE = /^[!-~]*$/

/**
 * Parses a path that starts with a slash, or returns its fault as a clause whose subject is the path. It refuses
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
    // Some servers decode twice, so a part must not contain these after a second decoding either.
    if (/[/\\\p{Cc}]|%(2f|5c|2e|00)/iu.test(part))
      return "must not have an encoded slash, backslash, dot or control character"
    if (/^\.{1,2}(;|$)/.test(part)) return "must not have `.` or `..` as a part"
    parts.push(part)
  }
  return { parts, text: `/${parts.map(written).join("/")}` }
}

/** The path and query of a request's URL after `/api/p/{slug}`; undefined if the split is ambiguous. */
export function splitUrl(url: string): { path: string; query: string } | undefined {
  const [, path = "", query = ""] = /^([^?]*)(\?.*)?$/s.exec(url) ?? []
  // "", "api", "p", the slug: the router matched these four by their decoded text.
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

/** Characters that `encodeURIComponent` encodes although a path part may contain them (RFC 3986, `pchar`). */
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
