/**
 * Slugs: each names one paywall, payment link or proxy bundle. Triggers maintain the tables `slugs` and `held_slugs`.
 * If a merchant gives up a slug, no other merchant gets it for 90 days.
 */
import { ApiError } from "../errors.ts"
import type { Db } from "./open.ts"

const UNIQUE_VIOLATION = "23505"
const constraints = ["slugs_pkey", "paywalls_slug_key", "payment_links_slug_key", "bundles_slug_key", "held_slugs_pkey"]

/** Awaits a write that may set a slug; throws `SLUG_TAKEN` if the slug is in use, or held for another merchant. */
export async function orSlugTaken<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    const { code, constraint } = error as { code?: string; constraint?: string }
    if (code === UNIQUE_VIOLATION && constraints.includes(constraint ?? "")) throw new ApiError("SLUG_TAKEN")
    throw error
  }
}

/**
 * Returns, for the operator, pairs that shared a slug before slugs had to be unique. The merchants should rename one of
 * each pair.
 */
export const sharedSlugs = (db: Db): Promise<{ slug: string; paywallId: string; linkId: string }[]> =>
  db
    .selectFrom("payment_links")
    .innerJoin("paywalls", "paywalls.slug", "payment_links.slug")
    .select(["payment_links.slug", "paywalls.id as paywallId", "payment_links.id as linkId"])
    .orderBy("payment_links.slug")
    .execute()
