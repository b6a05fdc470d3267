/** The rules for a bundle's fields. Pure. */
import type { ErrorDetail } from "../../platform/errors.ts"
import { type AmountToken, readAmount } from "../../platform/money/amount.ts"
import { isHeaderValue, isReservedHeader } from "./headers.ts"
import { type Method, readTemplate } from "./match-route.ts"

const OPENAPI_BYTES = 128 * 1024
const TOKEN = /^[!#$%&'*+.^`|~\w-]{1,100}$/

/** A route as it was received, with its price as text. */
interface WrittenRoute {
  method: Method
  path: string
  price: string | undefined
  description?: string | null | undefined
}

/** A route that passed the checks, with its price in base units. */
export interface CheckedRoute {
  method: Method
  path: string
  shape: string
  price: bigint
  description: string | null
}

/** The rules for a price: the lowest price in whole tokens, for each of the recipients that share it. */
interface PriceRules {
  token: AmountToken
  least: string
  recipients: number | undefined
}

/** Whether a price is zero, however it is written. A route with this price is free. */
const isFree = (written: string | undefined): boolean => /^0(\.0{1,18})?$/.test(written ?? "")

/** Parses the routes; returns either the routes or every fault in them. */
export function readRoutes(
  written: readonly WrittenRoute[],
  { token, least, recipients }: PriceRules,
): { routes: CheckedRoute[]; faults: ErrorDetail[] } {
  const routes: CheckedRoute[] = []
  const faults: ErrorDetail[] = []
  for (const [i, { method, path, price: text, description }] of written.entries()) {
    const at = (field: string) => `routes.${i}.${field}`
    const template = readTemplate(path)
    const price = isFree(text) ? 0n : readAmount(at("price"), text, token, least, recipients)
    if (typeof template === "string") faults.push({ path: at("path"), message: template })
    if (typeof price !== "bigint") faults.push(price)
    if (typeof template === "string" || typeof price !== "bigint") continue
    const { shape } = template
    const same = routes.find(route => route.method === method && route.shape === shape)
    if (same)
      faults.push({ path: at("path"), message: `must not match the same requests as ${same.method} ${same.path}` })
    routes.push({ method, path, shape, price, description: description ?? null })
  }
  return { routes, faults }
}

/** Faults in the headers that are added for an origin, whose names are in lower case. */
export function headerFaults(given: Readonly<Record<string, string | null>>): ErrorDetail[] {
  const names = Object.keys(given).map(name => name.toLowerCase())
  return Object.entries(given).flatMap(([name, value]): ErrorDetail[] => {
    const path = `originHeaders.${name}`
    const lower = name.toLowerCase()
    if (!TOKEN.test(name) || name.includes("_"))
      return [{ path, message: "must be the name of a header: letters, digits and hyphens" }]
    if (isReservedHeader(lower)) return [{ path, message: "is set by the service or by HTTP itself: leave it out" }]
    if (names.indexOf(lower) !== names.lastIndexOf(lower))
      return [{ path, message: "appears twice, in different case" }]
    if (value !== null && (!isHeaderValue(value) || value.trim() === ""))
      return [{ path, message: "must have a value of visible ASCII characters, or null to remove it" }]
    return []
  })
}

/** Faults in an origin's URL, in addition to those of any receiver's URL. `baseUrl` is the service's own URL. */
export function originFaults(url: string, baseUrl: string): ErrorDetail[] {
  if (!URL.canParse(url)) return []
  const { search, origin, pathname } = new URL(url)
  const path = "originUrl"
  if (url.includes("?") || search !== "")
    return [{ path, message: "must not have a query: each request's own query is passed on" }]
  if (/[\\]|%(2f|5c|00)/i.test(pathname)) return [{ path, message: "must not have an encoded slash or a backslash" }]
  if (origin === new URL(baseUrl).origin) return [{ path, message: "points to this service itself" }]
  return []
}

/** Faults in an OpenAPI document. Only the size is checked, because only agents read the document. */
export function openapiFaults(document: Record<string, unknown> | null | undefined): ErrorDetail[] {
  if (!document || Buffer.byteLength(JSON.stringify(document)) <= OPENAPI_BYTES) return []
  return [{ path: "openapi", message: "must be at most 128 KB as JSON: give its `openapiUrl` instead" }]
}

/** An origin's URL in the form in which it is stored: without a trailing slash. */
export const storedOrigin = (url: string): string => {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname.replace(/\/+$/, "")}`
}
