/** Finds faults in the fields of a checkout, product or link that the schema does not catch. Pure. */
import type { Row } from "../../platform/db/schema.ts"
import type { ErrorDetail } from "../../platform/errors.ts"
import type { ProductCreate } from "./catalog-schema.ts"

const METADATA_BYTES = 4_096

/** Faults in a session's metadata. */
export const metadataFaults = (metadata: unknown): ErrorDetail[] =>
  metadata && Buffer.byteLength(JSON.stringify(metadata)) > METADATA_BYTES
    ? [{ path: "metadata", message: "must be at most 4 KB as JSON" }]
    : []

/**
 * Faults in the URL to which the payer is redirected. The URL parser silently drops line breaks and tabs, so they are
 * refused here.
 */
export const redirectFaults = (redirectUrl: string | null | undefined): ErrorDetail[] =>
  redirectUrl && (!URL.canParse(redirectUrl) || /[\s\p{Cc}]/u.test(redirectUrl))
    ? [{ path: "redirectUrl", message: "must be a valid http(s) address" }]
    : []

/** Refuses a subscription's own split, because the split of its product applies to all periods. */
export const ownSplitFaults = (
  product: Pick<Row<"products">, "billing_interval"> | undefined,
  splitId: string | null | undefined,
): ErrorDetail[] =>
  splitId !== undefined && product && product.billing_interval !== null
    ? [{ path: "splitId", message: "can't be given for a product with `billingInterval`: set the product's `splitId`" }]
    : []

type SubscriptionTerms = Partial<Pick<ProductCreate, "billingInterval" | "billingCount" | "trialDays" | "maxPeriods">>

/** Faults in subscription terms, for a product that is `recurring` or not. */
export function subscriptionFaults({ billingCount, trialDays, maxPeriods }: SubscriptionTerms, recurring: boolean) {
  if (recurring) return []
  const given = Object.entries({ billingCount, trialDays: trialDays || undefined, maxPeriods: maxPeriods ?? undefined })
  return given.flatMap(([path, value]): ErrorDetail[] =>
    value === undefined ? [] : [{ path, message: "can't be given for a product without `billingInterval`" }],
  )
}

/** Faults in changed subscription terms. The length of a period can't be changed. */
export function changedTermsFaults(before: Row<"products">, body: SubscriptionTerms): ErrorDetail[] {
  const isOther = {
    billingInterval: body.billingInterval !== undefined && body.billingInterval !== before.billing_interval,
    billingCount: body.billingCount !== undefined && body.billingCount !== before.billing_count,
  }
  const message = "can't be changed: create another product, and move the subscribers to it"
  const changed = Object.entries(isOther).flatMap(([path, is]): ErrorDetail[] => (is ? [{ path, message }] : []))
  return changed.length > 0 ? changed : subscriptionFaults(body, before.billing_interval !== null)
}
