/** What an API key may do, until when and from where, as requests, rows and words express it. */
import { isDeepStrictEqual } from "node:util"
import { cidr } from "../../platform/config/setting-values.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, type ErrorDetail } from "../../platform/errors.ts"
import { MONEY_SCOPES, type Scope } from "../../platform/http/rights.ts"
import { timeAt } from "../../platform/http/time.ts"

/** The columns that determine what a key may do. */
export type KeyTerms = Pick<
  Row<"api_keys">,
  "scopes" | "expires_at" | "allowed_ips" | "refund_per_day" | "return_per_day"
>

/** The terms in a request: a missing field stays unchanged, and null removes a limit. */
export interface TermsInput {
  scopes?: readonly Scope[]
  expiresAt?: string | null
  allowedIps?: readonly string[] | null
  limits?: { refundPerDay?: number | null; returnPerDay?: number | null }
}

export const NEW_KEY: KeyTerms = {
  scopes: ["checkouts"],
  expires_at: null,
  allowed_ips: null,
  refund_per_day: null,
  return_per_day: null,
}

/** A key's terms after a change; throws `VALIDATION_ERROR` for an end in the past or an invalid address. */
export function changedTerms(before: KeyTerms, change: TermsInput, now: Date): KeyTerms {
  const { scopes = before.scopes, expiresAt, allowedIps, limits = {} } = change
  const { refundPerDay = before.refund_per_day, returnPerDay = before.return_per_day } = limits
  return {
    scopes: [...scopes],
    expires_at: expiresAt === undefined ? before.expires_at : expiresAt === null ? null : endAt(expiresAt, now),
    allowed_ips: allowedIps === undefined ? before.allowed_ips : allowedIps && cidrsOf(allowedIps),
    refund_per_day: refundPerDay,
    return_per_day: returnPerDay,
  }
}

function endAt(text: string, now: Date): Date {
  const at = timeAt("expiresAt", text)
  if (at <= now) throw new ApiError("VALIDATION_ERROR", [{ path: "expiresAt", message: "must be in the future" }])
  return at
}

function cidrsOf(given: readonly string[]): string[] {
  const faults: ErrorDetail[] = []
  const read = given.map((text, i) => {
    try {
      return cidr(text)
    } catch (error) {
      faults.push({ path: `allowedIps.${i}`, message: (error as Error).message })
      return text
    }
  })
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return [...new Set(read)]
}

/** Whether a key with these terms can move money. */
export const movesMoney = ({ scopes }: Pick<KeyTerms, "scopes">): boolean =>
  scopes.some(scope => (MONEY_SCOPES as readonly string[]).includes(scope))

/** Whether two keys have the same terms. */
export const isSame = (a: KeyTerms, b: KeyTerms): boolean => isDeepStrictEqual(termsOf(a), termsOf(b))

/** The terms of a key's row, without its other columns. */
const termsOf = (row: KeyTerms): KeyTerms => ({
  scopes: row.scopes,
  expires_at: row.expires_at,
  allowed_ips: row.allowed_ips,
  refund_per_day: row.refund_per_day,
  return_per_day: row.return_per_day,
})

/** The terms in words, for the wallet that must sign them. */
export function termsInWords(terms: KeyTerms): string {
  const { scopes, expires_at: end, allowed_ips: ips, refund_per_day: refunds, return_per_day: returns } = terms
  const parts = [
    `Scopes: ${scopes.join(", ")}`,
    ...(end ? [`until ${end.toISOString()}`] : []),
    ...(ips ? [`from ${ips.join(", ")}`] : []),
    ...(refunds === null ? [] : [`refunds up to ${refunds} per day`]),
    ...(returns === null ? [] : [`returns up to ${returns} per day`]),
  ]
  return parts.join("; ")
}
