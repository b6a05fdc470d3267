/** Cookies as browsers send and store them (RFC 6265). Pure. */

/**
 * The value of the cookie with this name; undefined if it was not sent. If it was sent twice, the value is empty, which
 * is never valid: another site of the same domain may have added the second one.
 */
export function cookieIn(header: string | undefined, name: string): string | undefined {
  const values = (header ?? "").split(";").flatMap(pair => {
    const [key = "", ...value] = pair.trim().split("=")
    return key === name ? [value.join("=")] : []
  })
  return values.length > 1 ? "" : values[0]
}

interface Cookie {
  name: string
  value: string
  isSecure: boolean
  sameSite: "Strict" | "Lax"
  /** In seconds; 0 removes the cookie. */
  maxAgeS: number
}

/** A `Set-Cookie` header of a cookie that no script can read, for this host only. */
export const setCookie = ({ name, value, isSecure, sameSite, maxAgeS }: Cookie): string =>
  `${name}=${value}; Path=/; Max-Age=${maxAgeS};${isSecure ? " Secure;" : ""} HttpOnly; SameSite=${sameSite}`
