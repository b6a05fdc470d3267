/** Finds out what to pay at the address of a page or of the API. */

/** A checkout, or a request that answers 402 until it is paid. */
export type Place = { checkout: string; origin: string } | { url: string; init: RequestInit }

/** The place to pay; undefined for an address that is not a checkout, payment link or paywall of a Sluice service. */
export function placeOf(address: string | URL): Place | undefined {
  const { origin, pathname, search } = new URL(address)
  const checkout = /^\/(?:pay|api\/checkouts)\/(cs_[a-z0-9]+)$/.exec(pathname)?.[1]
  if (checkout) return { checkout, origin }
  const paywall = /^\/(?:paywall|api\/paywalls)\/(pw_[a-z0-9]+)$/.exec(pathname)?.[1]
  if (paywall) return { url: `${origin}/api/agent/paywalls/${paywall}/settle`, init: { method: "POST" } }
  const slug = /^\/(?:api\/)?p\/([a-z0-9-]+)$/.exec(pathname)?.[1]
  return slug ? { url: `${origin}/api/p/${slug}${search}`, init: {} } : undefined
}
