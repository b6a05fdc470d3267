/** Every page of the console, by its route: where it is in the tests' world, and what it shows there. */
import type { World } from "./console-sales.ts"

export interface ConsolePage {
  /** Of its pictures. */
  name: string
  /** As `main.tsx` names it. */
  route: string
  path: string
  /** Texts of the page in the tests' world. */
  shows: string[]
  /**
   * A list or a thing is read, and says so where that fails. A form reads nothing that it needs; its request fails. `still` are pages
   * that make no request.
   */
  kind: "list" | "thing" | "form" | "still"
  /** The button of a form. */
  submit?: string
  /** A filter of a list that finds nothing. */
  none?: string
}

const list = (name: string, path: string, shows: string[], none?: string): ConsolePage => ({
  name,
  route: path,
  path,
  shows,
  kind: "list",
  ...(none ? { none } : {}),
})
const thing = (name: string, route: string, path: string, shows: string[]): ConsolePage => ({
  name,
  route,
  path,
  shows,
  kind: "thing",
})
const form = (name: string, path: string, submit: string, shows: string[]): ConsolePage => ({
  name,
  route: path,
  path,
  shows,
  kind: "form",
  submit,
})

const NOBODY = `0x${"7".repeat(40)}`

const money = (world: World): ConsolePage[] => [
  list("home", "/", ["Received, last 30 days", "payments to decide"]),
  list("payments", "/payments", ["250.00", "Order 1041"], "status=reversed"),
  thing("payment-paid", "/payments/$id", `/payments/${world.paid.id}`, ["19.90", "What happened", "Lisbon"]),
  list("needs-you", "/needs-you", ["Partly paid", "Paid twice", "1.80"]),
  list("checkouts", "/checkouts", ["Order 1037", "buyer1040@example.com", "Waiting"], "status=refunded"),
  form("checkout-new", "/checkouts/new", "Create checkout", ["What it is for"]),
  thing("captured", "/checkouts/$id", `/checkouts/${world.captured}`, ["42.00", "Can be refunded"]),
  list("payouts", "/payouts", ["250.00", "Export as CSV"], "state=reverted"),
  thing("payout", "/payouts/$id", `/payouts/${world.payout}`, ["Payments inside it", "How it was sent"]),
  list("payers", "/payers", ["48.20", "64.00"], `q=${NOBODY}`),
  thing("payer", "/payers/$id", `/payers/${world.payer}`, ["Last payments", "Order 1042"]),
  list("reports", "/reports", ["Not in your wallet yet", "Export payouts"]),
  list("addresses", "/addresses", ["cs_", "terms"]),
]

const sold = (world: World): ConsolePage[] => [
  list("links", "/links", ["Support the radio", "the payer chooses"], "q=nothing"),
  form("link-new", "/links/new", "Create link", ["Uses at most"]),
  thing("link", "/links/$id", `/links/${world.link}`, ["Copy embed code", "Support the radio"]),
  thing("link-found", "/payment-links/$id", `/payment-links/${world.link}`, ["Support the radio"]),
  list("products", "/products", ["Press pass", "every month"], "q=nothing"),
  form("product-new", "/products/new", "Create product", ["Price"]),
  thing("product", "/products/$id", `/products/${world.product}`, ["9.00"]),
  list("subscriptions", "/subscriptions", ["reader@shop.example", "Press pass", "A month brings"], "status=past_due"),
  thing("subscription", "/subscriptions/$id", `/subscriptions/${world.subscription}`, [
    "every month",
    "It is paid.",
    "Press pass",
    "grace days",
  ]),
  list("invoices", "/invoices", ["9.00", "reader@shop.example", "Invoice 1"], "status=void"),
  thing("invoice", "/invoices/$id", `/invoices/${world.invoice}`, ["9.00", "The subscriber's page", "Press pass"]),
  list("paywalls", "/paywalls", ["The lighthouse film"], "q=nothing"),
  form("paywall-new", "/paywalls/new", "Create paywall", ["Access lasts"]),
  thing("paywall", "/paywalls/$id", `/paywalls/${world.paywall}`, ["5.00", "access to the content"]),
  list("apis", "/bundles", ["Weather", "Payments by agents"], "q=nothing"),
  form("api-new", "/bundles/new", "Sell it", ["Routes and their prices"]),
  thing("api", "/bundles/$id", `/bundles/${world.bundle}`, ["Its address", "Every call that was paid for"]),
  list("splits", "/splits", ["Author and publisher", "33.3333 % Author"]),
  { ...form("split-new", "/splits/new", "Create split", ["Recipient 1"]), kind: "still" },
  thing("split", "/splits/$id", `/splits/${world.split}`, ["3.33333 USDC", "6.66667 USDC", "100 % in all"]),
]

const built = (world: World): ConsolePage[] => [
  list("webhooks", "/webhooks", ["sandbox/inbox/shop", "Failing", "payment.exception"], "status=skipped"),
  form("webhook-new", "/webhooks/new", "Add endpoint", ["Address"]),
  thing("webhook", "/webhooks/$id", `/webhooks/${world.webhook}`, ["Send a test", "Each by its name"]),
  thing("delivery", "/webhooks/deliveries/$id", `/webhooks/deliveries/${world.failed}`, [
    "the connection was refused",
    "retried automatically",
  ]),
  thing("delivery-found", "/deliveries/$id", `/deliveries/${world.failed}`, ["the connection was refused"]),
  list("listeners", "/listeners", ["sluice listeners create"]),
  list("event-types", "/event-types", ["payment.exception", "When it is sent"]),
  thing("event-type", "/event-types/$id", "/event-types/payment.exception", ["Example", "Fields", "data.amount"]),
  thing("event", "/events/$id", `/events/${world.event}`, ["As it is sent"]),
  list("keys", "/developers", ["API keys", "Send money", "All keys together"]),
  thing("key", "/developers/$id", `/developers/${world.key}`, ["Roll it", "Begins with"]),
  list("requests", "/requests", ["Refused", "ms"], "status=5xx"),
  list("request", "/requests/$id", [world.request, "VALIDATION_ERROR"]),
  { ...form("sandbox-tools", "/sandbox", "", ["Pay as a buyer", "Faucet"]), kind: "still" },
]

const account = (): ConsolePage[] => [
  list("payout-address", "/payout-address", ["Payout address", "Wallet lock", "Who approves returns"]),
  list("settings", "/settings", ["Look of the payers' pages", "As a payer sees it"]),
  list("notifications", "/notifications", ["Mail to you", "always sent"]),
  list("sessions", "/sessions", ["this one", "Sign out"]),
  list("audit", "/audit", ["Webhook created"], "actorKind=subscriber"),
  list("erasure", "/erasure", ["Erase a customer", "No data erased yet"]),
  list("members", "/team", ["Everything, also payout addresses"]),
  { ...form("accept", "/team/accept", "Accept", ["Only the person named in an invitation"]), kind: "still" },
  list("system", "/system", ["Newest block"]),
  { ...form("states", "/dev/states", "", ["Every state"]), kind: "still" },
]

/** All of them, each route once. */
export const pagesOf = (world: World): ConsolePage[] =>
  [...money(world), ...sold(world), ...built(world), ...account()].map(each =>
    each.name === "request" ? { ...each, path: `/requests/${world.request}` } : each,
  )
