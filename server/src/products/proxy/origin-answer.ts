/**
 * Decides whether an origin's answer is the answer to the call or a failure. After a failure, the caller may repeat
 * the call without paying again. Pure.
 */

/**
 * The statuses with which an origin refuses the merchant instead of the caller. The cause is the merchant's
 * credentials, quota or payment, or the origin did not wait for the request. Any other status below 500, even 404, is
 * an answer for which the caller paid.
 */
const refusals = new Set([401, 402, 407, 408, 421, 425, 429])

/**
 * Why an answer with this status is a failure, in words that complete "the origin …"; undefined if it is not a
 * failure.
 */
export function failureOf(status: number, location: string | undefined): string | undefined {
  if (status >= 300 && status < 400 && status !== 304)
    return `answered ${status}, a redirect${location === undefined ? "" : ` to ${location.slice(0, 500)}`}; redirects are not followed`
  if (status < 200 || status >= 500 || refusals.has(status)) return `answered ${status}`
  return undefined
}

/** Whether an answer has no body, because of its status or because it answers a HEAD. */
export const isBodiless = (method: string, status: number): boolean =>
  method === "HEAD" || status === 204 || status === 205 || status === 304
