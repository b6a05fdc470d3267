/** The pages, as the sidebar, the keys and the commands name them. */
import { isSandbox } from "../api/facts.ts"
import type { IconName } from "./icons.tsx"

export interface Place {
  to: string
  name: string
  icon: IconName
  /** Pressed after `g`. */
  key: string
  group?: string
  /** Other pages that belong to it. */
  also?: readonly string[]
}

const settings = ["/settings", "/notifications", "/sessions", "/audit", "/erasure"]

export const places: Place[] = [
  { to: "/", name: "Home", icon: "home", key: "h" },
  { to: "/payments", name: "Payments", icon: "payments", key: "p" },
  { to: "/needs-you", name: "Needs you", icon: "needs", key: "n" },
  { to: "/payouts", name: "Payouts", icon: "payouts", key: "o" },
  { to: "/payers", name: "Payers", icon: "payers", key: "y" },
  { to: "/reports", name: "Reports", icon: "reports", key: "r", also: ["/addresses"] },
  { to: "/checkouts", name: "Checkouts", icon: "checkouts", key: "c", group: "Sell" },
  { to: "/links", name: "Links", icon: "links", key: "l", group: "Sell", also: ["/payment-links"] },
  { to: "/products", name: "Products", icon: "products", key: "d", group: "Sell" },
  { to: "/subscriptions", name: "Subscriptions", icon: "subscriptions", key: "b", group: "Sell", also: ["/invoices"] },
  { to: "/paywalls", name: "Paywalls", icon: "paywalls", key: "a", group: "Sell" },
  { to: "/bundles", name: "APIs", icon: "bundles", key: "i", group: "Sell" },
  { to: "/splits", name: "Splits", icon: "splits", key: "s", group: "Sell" },
  {
    to: "/webhooks",
    name: "Webhooks",
    icon: "webhooks",
    key: "w",
    group: "Build",
    also: ["/events", "/listeners", "/event-types", "/deliveries"],
  },
  { to: "/developers", name: "API keys", icon: "keys", key: "k", group: "Build" },
  { to: "/requests", name: "Requests", icon: "requests", key: "q", group: "Build" },
  ...(isSandbox ? [{ to: "/sandbox", name: "Sandbox", icon: "sandbox", key: "v", group: "Build" } as const] : []),
  { to: "/payout-address", name: "Settings", icon: "wallet", key: "x", group: "Account", also: settings },
  { to: "/team", name: "Team", icon: "team", key: "t", group: "Account" },
  { to: "/system", name: "System", icon: "system", key: "z", group: "Account" },
]

/** Pages below another's, which the commands name too. */
export const inner: Place[] = [
  { to: "/settings", name: "Account and look", icon: "wallet", key: "" },
  { to: "/notifications", name: "Mail to me", icon: "wallet", key: "" },
  { to: "/sessions", name: "Signed-in browsers", icon: "wallet", key: "" },
  { to: "/audit", name: "Audit log", icon: "audit", key: "u" },
  { to: "/erasure", name: "Erase a customer", icon: "wallet", key: "" },
  { to: "/event-types", name: "Events, what each holds", icon: "webhooks", key: "e" },
  { to: "/listeners", name: "Listeners", icon: "webhooks", key: "" },
  { to: "/invoices", name: "Invoices", icon: "subscriptions", key: "" },
  { to: "/addresses", name: "Receiving addresses", icon: "reports", key: "" },
]

/** What "c" and the commands create. */
export const creations = [
  { name: "Create checkout", to: "/checkouts/new" },
  { name: "Create link", to: "/links/new" },
  { name: "Create product", to: "/products/new" },
  { name: "Create paywall", to: "/paywalls/new" },
  { name: "Create split", to: "/splits/new" },
  { name: "Sell an API", to: "/bundles/new" },
  { name: "Add webhook endpoint", to: "/webhooks/new" },
]

const isBelow = (path: string, to: string): boolean => path === to || path.startsWith(`${to}/`)

/** Whether a page belongs to a place. A checkout is one of "Checkouts", also where the address is that of a payment. */
export function isAt(path: string, { to, also = [] }: Pick<Place, "to" | "also">): boolean {
  const place = path.replace(/^\/payments\/cs_/, "/checkouts/cs_")
  return to === "/" ? place === "/" : [to, ...also].some(each => isBelow(place, each))
}
