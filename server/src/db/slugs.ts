/** Slugs: one name for one thing, over paywalls and payment links together. The table `slugs` holds them, by triggers. */
import { ApiError } from "../errors.ts"
import type { Db } from "./open.ts"

const UNIQUE_VIOLATION = "23505"
const constraints = ["slugs_pkey", "paywalls_slug_key", "payment_links_slug_key"]

/** The result of a write that may set a slug; `SLUG_TAKEN` when something else has it. */
export async function orSlugTaken<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    const { code, constraint } = error as { code?: string; constraint?: string }
    if (code === UNIQUE_VIOLATION && constraints.includes(constraint ?? "")) throw new ApiError("SLUG_TAKEN")
    throw error
  }
}

/** Pairs that had one slug before it had to be unique, for the operator: their merchants should rename one. */
export const sharedSlugs = (db: Db): Promise<{ slug: string; paywallId: string; linkId: string }[]> =>
  db
    .selectFrom("payment_links")
    .innerJoin("paywalls", "paywalls.slug", "payment_links.slug")
    .select(["payment_links.slug", "paywalls.id as paywallId", "payment_links.id as linkId"])
    .orderBy("payment_links.slug")
    .execute()
