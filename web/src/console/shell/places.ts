/** The pages, as the sidebar, the keys and the commands name them. */
import type { IconName } from "./icons.tsx"

export interface Place {
  to: string
  name: string
  icon: IconName
  /** Pressed after `g`. */
  key: string
  group?: string
}

export const places: Place[] = [
  { to: "/", name: "Home", icon: "home", key: "h" },
  { to: "/payments", name: "Payments", icon: "payments", key: "p" },
  { to: "/needs-you", name: "Needs you", icon: "needs", key: "n" },
  { to: "/payouts", name: "Payouts", icon: "payouts", key: "o" },
  { to: "/checkouts", name: "Checkouts", icon: "checkouts", key: "c", group: "Sell" },
  { to: "/links", name: "Links", icon: "links", key: "l", group: "Sell" },
  { to: "/products", name: "Products", icon: "products", key: "d", group: "Sell" },
  { to: "/paywalls", name: "Paywalls", icon: "paywalls", key: "a", group: "Sell" },
  { to: "/webhooks", name: "Webhooks", icon: "webhooks", key: "w", group: "Build" },
  { to: "/developers", name: "API keys", icon: "keys", key: "k", group: "Build" },
  { to: "/payout-address", name: "Payout addresses", icon: "wallet", key: "x", group: "Account" },
  { to: "/team", name: "Team", icon: "team", key: "t", group: "Account" },
  { to: "/audit", name: "Audit log", icon: "audit", key: "u", group: "Account" },
]

/** What "c" and the commands create. */
export const creations = [
  { name: "Create checkout", to: "/checkouts/new" },
  { name: "Create link", to: "/links/new" },
  { name: "Create product", to: "/products/new" },
  { name: "Create paywall", to: "/paywalls/new" },
  { name: "Add webhook endpoint", to: "/webhooks/new" },
]

/** Whether a page belongs to a place. A checkout is one of "Checkouts", also where the address is that of a payment. */
export function isAt(path: string, to: string): boolean {
  const place = path.replace(/^\/payments\/cs_/, "/checkouts/cs_")
  return to === "/" ? place === "/" : place === to || place.startsWith(`${to}/`)
}
