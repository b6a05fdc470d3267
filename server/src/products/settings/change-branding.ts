/** Changes how a merchant's pages look, and which sites may show them in a frame. */
import type { Mode } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, type ErrorDetail } from "../../platform/errors.ts"
import { type Logo, readLogo } from "./logo.ts"

/** The path of a logo, which changes with its bytes. */
const logoPath = (hash: string): string => `/logo/${hash}`

/** A merchant's branding. Parts that are not set are null or empty. */
export interface Branding {
  /** As `#rrggbb`. */
  accentColor: string | null
  /** A path on this server. */
  logo: string | null
  allowedOrigins: string[]
}

/** A change as it was received: undefined leaves a part unchanged, null removes it. */
export interface BrandingChange {
  accentColor?: string | null
  logo?: string | null
  allowedOrigins?: string[]
}

/** A merchant's branding, without the bytes of the logo. */
export async function brandingOf(ctx: TxContext, merchantId: string): Promise<Branding> {
  const row = await ctx.db
    .selectFrom("branding")
    .select(["accent_color", "allowed_origins", "logo_hash"])
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  return shownBranding(row)
}

/** Formats a merchant's branding; `row` is undefined if nothing was ever set. Pure. */
export const shownBranding = (
  row: (Pick<Row<"branding">, "accent_color" | "logo_hash"> & { allowed_origins: string[] | null }) | undefined,
): Branding => ({
  accentColor: row?.accent_color ?? null,
  logo: row?.logo_hash ? logoPath(row.logo_hash) : null,
  allowedOrigins: row?.allowed_origins ?? [],
})

/** Changes the given parts. Throws `VALIDATION_ERROR` with every fault, and changes nothing then. */
export async function changeBranding(ctx: TxContext, merchantId: string, change: BrandingChange): Promise<void> {
  const faults: ErrorDetail[] = []
  const logo = typeof change.logo === "string" ? readLogo(change.logo) : change.logo
  if (typeof logo === "string") faults.push({ path: "branding.logo", message: logo })
  const origins = change.allowedOrigins?.map((text, i) => {
    const origin = readOrigin(text, ctx.settings.mode)
    if (origin === undefined) faults.push({ path: `allowedOrigins.${i}`, message: originMessage(ctx.settings.mode) })
    return origin ?? ""
  })
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  const values = {
    ...(change.accentColor === undefined ? {} : { accent_color: change.accentColor?.toLowerCase() ?? null }),
    ...(origins === undefined ? {} : { allowed_origins: JSON.stringify([...new Set(origins)]) }),
    ...(logo === undefined ? {} : logoColumns(logo as Logo | null)),
  }
  if (Object.keys(values).length === 0) return
  await ctx.db
    .insertInto("branding")
    .values({ merchant_id: merchantId, ...values })
    .onConflict(conflict => conflict.column("merchant_id").doUpdateSet(values))
    .execute()
}

const logoColumns = (logo: Logo | null) => ({
  logo: logo?.bytes ?? null,
  logo_type: logo?.type ?? null,
  logo_hash: logo?.hash ?? null,
})

/** The logo with this hash, and its bytes, whichever merchant it belongs to; undefined if there is none. */
export async function logoOf(
  ctx: TxContext,
  hash: string,
): Promise<Pick<Row<"branding">, "logo" | "logo_type"> | undefined> {
  return await ctx.db
    .selectFrom("branding")
    .select(["logo", "logo_type"])
    .where("logo_hash", "=", hash)
    .limit(1)
    .executeTakeFirst()
}

/**
 * Matches the characters of a host. The URL parser also accepts `*`, `;` and quotes, which have a meaning in a
 * policy.
 */
const HOST = /^([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(:\d{1,5})?$/

/**
 * The normal form of an origin; undefined if the text is not a site's origin. Plain http is allowed outside live
 * mode.
 *
 * @example readOrigin("https://Shop.example/", "live") // "https://shop.example"
 */
export function readOrigin(text: string, mode: Mode): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (!url || !HOST.test(url.host) || `${url.origin}/` !== url.href) return undefined
  const isAllowed = url.protocol === "https:" || (url.protocol === "http:" && mode !== "live")
  return isAllowed ? url.origin : undefined
}

const originMessage = (mode: Mode): string =>
  `must be the origin of a site: ${mode === "live" ? "https://" : "http(s)://"}, a host and an optional port, without a path or a wildcard`
