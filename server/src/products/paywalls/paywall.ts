/** The rules of a paywall that a schema can't express. Pure. */
import type { ErrorDetail } from "../../platform/errors.ts"

const PER_CALL_S = 300n
const CONTENT_DATA_BYTES = 64 * 1024

/** The default duration of a payment's access, in seconds; null for forever. */
export const defaultDuration = (pricingModel: string): bigint | null =>
  pricingModel === "per_call" ? PER_CALL_S : null

/** How many calls a payment buys; null for unlimited calls within its time. */
export const callsOf = (pricingModel: string): number | null => (pricingModel === "per_call" ? 1 : null)

/**
 * The duration after a change, in seconds. Without a new duration, it becomes the new pricing model's default if it
 * was the old model's default, and otherwise stays unchanged.
 */
export function durationAfter(
  before: { pricingModel: string; durationS: bigint | null },
  change: { pricingModel?: string; accessDuration?: number | null },
): bigint | null {
  if (change.accessDuration !== undefined) return change.accessDuration === null ? null : BigInt(change.accessDuration)
  if (change.pricingModel === undefined || before.durationS !== defaultDuration(before.pricingModel))
    return before.durationS
  return defaultDuration(change.pricingModel)
}

/** Returns the faults of a paywall's content that its schema does not catch. */
export function contentFaults(content: { contentData?: unknown; contentUrl?: string | null }): ErrorDetail[] {
  const faults: ErrorDetail[] = []
  if (content.contentData && Buffer.byteLength(JSON.stringify(content.contentData)) > CONTENT_DATA_BYTES)
    faults.push({ path: "contentData", message: "must be at most 64 KB as JSON" })
  if (content.contentUrl && !URL.canParse(content.contentUrl))
    faults.push({ path: "contentUrl", message: "must be a valid http(s) address" })
  return faults
}
