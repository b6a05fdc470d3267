/** The rules of a paywall that no schema can say. Pure. */
import type { Token } from "../chain/networks.ts"
import type { ErrorDetail } from "../errors.ts"
import { AmountError, formatAmount, parseAmount } from "../money/amount.ts"

const PER_CALL_S = 300n
const CONTENT_DATA_BYTES = 64 * 1024

/** How long a payment gives access where the merchant doesn't say, in seconds; null is for ever. */
export const defaultDuration = (pricingModel: string): bigint | null =>
  pricingModel === "per_call" ? PER_CALL_S : null

/**
 * The duration after a change: what was said, or the default of the new pricing model unless the merchant had set
 * another than the default of the old one.
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

/**
 * The price in base units of the token; a fault where it can't be one, or is below `minAmount` whole tokens for each of
 * the `recipients` that it is divided among, as each is a transfer of its own.
 */
export function readPrice(
  written: string | undefined,
  token: Token,
  minAmount: string,
  recipients = 1,
): bigint | ErrorDetail {
  try {
    const price = parseAmount(written ?? "", token.decimals)
    const least = parseAmount(minAmount, token.decimals) * BigInt(recipients)
    if (price >= least) return price
    const why = recipients > 1 ? ` with a split of ${recipients}` : ""
    return { path: "price", message: `must be at least ${formatAmount(least, token.decimals)} ${token.symbol}${why}` }
  } catch (error) {
    if (error instanceof AmountError) return { path: "price", message: error.message }
    throw error
  }
}

/** What is wrong with the content of a paywall beyond its schema. */
export function contentFaults(content: { contentData?: unknown; contentUrl?: string | null }): ErrorDetail[] {
  const faults: ErrorDetail[] = []
  if (content.contentData && Buffer.byteLength(JSON.stringify(content.contentData)) > CONTENT_DATA_BYTES)
    faults.push({ path: "contentData", message: "must be at most 64 KB as JSON" })
  if (content.contentUrl && !URL.canParse(content.contentUrl))
    faults.push({ path: "contentUrl", message: "must be a valid http(s) address" })
  return faults
}
