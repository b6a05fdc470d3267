/** The console: the routes, each with its page in a chunk of its own, and what is around them. */
import { MantineProvider } from "@mantine/core"
import { Notifications } from "@mantine/notifications"
import { QueryClient, QueryClientProvider } from "@tanstack/react-query"
import {
  createRootRoute,
  createRoute,
  createRouter,
  Link,
  type RouteComponent,
  RouterProvider,
} from "@tanstack/react-router"
import { setNonce } from "get-nonce"
import { createRoot } from "react-dom/client"
import { changesOn } from "./api/apply-changes.ts"
import { chosenMerchant } from "./api/client.ts"
import { firstMe, isSandbox } from "./api/facts.ts"
import { retries } from "./api/live.ts"
import { followChanges } from "./api/stream.ts"
import { followG } from "./shell/keys.ts"
import { Layout } from "./shell/layout.tsx"
import { useScheme } from "./shell/theme-choice.ts"
import "./styles.css"
import { theme, tokens } from "./theme.ts"
import { later } from "./ui/later.tsx"

/** Styles that libraries add need it, as the page's policy names what may run. */
const nonce = document.querySelector<HTMLScriptElement>("script[nonce]")?.nonce ?? ""
setNonce(nonce)

const root = createRootRoute({ component: Layout, notFoundComponent: NotFound, errorComponent: Broken as never })

function NotFound() {
  return (
    <div className="state">
      <h1>There is no such page</h1>
      <p>The address may belong to another version of the console.</p>
      <Link to="/">Go to Home</Link>
    </div>
  )
}

function Broken({ error }: { error: Error }) {
  return (
    <div className="state" role="alert">
      <h1>This page failed</h1>
      <p>{error.message}</p>
      <a href={location.href}>Load it again</a>
    </div>
  )
}

/** A route whose page is loaded when it is first wanted. */
const page = <M extends Record<N, unknown>, N extends string>(path: string, load: () => Promise<M>, name: N) =>
  createRoute({
    getParentRoute: () => root,
    path,
    component: later(async () => (await load())[name] as RouteComponent),
    // Filters are in the address; each page reads those that it knows.
    validateSearch: (search: Record<string, unknown>) => search,
  })

const tree = root.addChildren([
  page("/", () => import("./pages/home.tsx"), "Home"),
  page("/payments", () => import("./pages/payments.tsx"), "Payments"),
  page("/payments/$id", () => import("./pages/payment.tsx"), "OnePayment"),
  page("/needs-you", () => import("./pages/needs-you.tsx"), "NeedsYou"),
  page("/checkouts", () => import("./pages/checkouts.tsx"), "Checkouts"),
  page("/checkouts/new", () => import("./pages/new-checkout.tsx"), "NewCheckout"),
  page("/checkouts/$id", () => import("./pages/payment.tsx"), "OnePayment"),
  page("/links", () => import("./pages/links.tsx"), "Links"),
  page("/links/new", () => import("./pages/one-link.tsx"), "NewLink"),
  page("/links/$id", () => import("./pages/one-link.tsx"), "OneLink"),
  page("/products", () => import("./pages/products.tsx"), "Products"),
  page("/products/new", () => import("./pages/one-product.tsx"), "NewProduct"),
  page("/products/$id", () => import("./pages/one-product.tsx"), "OneProduct"),
  page("/paywalls", () => import("./pages/paywalls.tsx"), "Paywalls"),
  page("/paywalls/new", () => import("./pages/one-paywall.tsx"), "NewPaywall"),
  page("/paywalls/$id", () => import("./pages/one-paywall.tsx"), "OnePaywall"),
  page("/webhooks", () => import("./pages/webhooks.tsx"), "Webhooks"),
  page("/webhooks/new", () => import("./pages/new-webhook.tsx"), "NewWebhook"),
  page("/requests", () => import("./pages/requests.tsx"), "Requests"),
  page("/requests/$id", () => import("./pages/requests.tsx"), "OneRequest"),
  page("/event-types", () => import("./pages/event-types.tsx"), "EventTypes"),
  page("/event-types/$id", () => import("./pages/event-types.tsx"), "OneEventType"),
  page("/listeners", () => import("./pages/listeners.tsx"), "Listeners"),
  page("/webhooks/deliveries/$id", () => import("./pages/delivery.tsx"), "OneDelivery"),
  page("/webhooks/$id", () => import("./pages/one-webhook.tsx"), "OneWebhook"),
  page("/payouts", () => import("./pages/payouts.tsx"), "Payouts"),
  page("/payouts/$id", () => import("./pages/one-payout.tsx"), "OnePayout"),
  page("/developers", () => import("./pages/developers.tsx"), "Developers"),
  page("/team", () => import("./pages/team.tsx"), "Team"),
  page("/team/accept", () => import("./pages/accept.tsx"), "Accept"),
  page("/audit", () => import("./pages/audit.tsx"), "Audit"),
  page("/developers/$id", () => import("./pages/one-key.tsx"), "OneKey"),
  page("/settings", () => import("./pages/settings.tsx"), "AccountSettings"),
  page("/notifications", () => import("./pages/notifications.tsx"), "NotificationSettings"),
  page("/sessions", () => import("./pages/sessions.tsx"), "Sessions"),
  page("/erasure", () => import("./pages/erasure.tsx"), "Erasures"),
  page("/splits", () => import("./pages/splits.tsx"), "Splits"),
  page("/splits/new", () => import("./pages/one-split.tsx"), "NewSplit"),
  page("/splits/$id", () => import("./pages/one-split.tsx"), "OneSplit"),
  page("/payers", () => import("./pages/payers.tsx"), "Payers"),
  page("/payers/$id", () => import("./pages/one-payer.tsx"), "OnePayer"),
  page("/subscriptions", () => import("./pages/subscriptions.tsx"), "Subscriptions"),
  page("/subscriptions/$id", () => import("./pages/one-subscription.tsx"), "OneSubscription"),
  page("/invoices", () => import("./pages/subscriptions.tsx"), "Invoices"),
  page("/invoices/$id", () => import("./pages/one-invoice.tsx"), "OneInvoice"),
  // As the search's answers name them.
  page("/deliveries/$id", () => import("./pages/delivery.tsx"), "OneDelivery"),
  page("/payment-links/$id", () => import("./pages/one-link.tsx"), "OneLink"),
  page("/bundles", () => import("./pages/bundles.tsx"), "Bundles"),
  page("/bundles/new", () => import("./pages/one-bundle.tsx"), "NewBundle"),
  page("/bundles/$id", () => import("./pages/one-bundle.tsx"), "OneBundle"),
  page("/reports", () => import("./pages/reports.tsx"), "Reports"),
  page("/addresses", () => import("./pages/addresses.tsx"), "Addresses"),
  page("/system", () => import("./pages/system.tsx"), "System"),
  page("/events/$id", () => import("./pages/event.tsx"), "OneEvent"),
  page("/payout-address", () => import("./pages/payout-address.tsx"), "PayoutAddress"),
  ...(isSandbox
    ? [
        page("/sandbox", () => import("./pages/sandbox.tsx"), "SandboxTools"),
        page("/dev/states", () => import("./pages/dev-states.tsx"), "DevStates"),
      ]
    : []),
])

const router = createRouter({
  routeTree: tree,
  basepath: "/console",
  defaultPreload: "intent",
  // In place of the page alone: what is around it stays.
  defaultErrorComponent: Broken as never,
  scrollRestoration: true,
})

const queries = new QueryClient({
  defaultOptions: { queries: { staleTime: 4_000, gcTime: 600_000, refetchOnWindowFocus: true, ...retries } },
})

function App() {
  const scheme = useScheme()
  return (
    <MantineProvider
      theme={theme}
      cssVariablesResolver={tokens}
      forceColorScheme={scheme}
      getStyleNonce={() => nonce}
      deduplicateInlineStyles
    >
      <QueryClientProvider client={queries}>
        <RouterProvider router={router as never} />
        <Notifications position="bottom-right" limit={4} />
      </QueryClientProvider>
    </MantineProvider>
  )
}

/** Begins again for another merchant. */
function followMerchant(): void {
  const { onChange, onReset } = changesOn(queries)
  let stop = followChanges(onChange, onReset)
  chosenMerchant.follow(() => {
    stop()
    stop = followChanges(onChange, onReset)
  })
}

if (firstMe) {
  followG()
  followMerchant()
  const element = document.getElementById("root")
  if (element) createRoot(element).render(<App />)
}
