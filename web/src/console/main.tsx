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
import { firstMe, isSandbox } from "./api/facts.ts"
import { retries } from "./api/live.ts"
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
      <p>The address may be of another version of the console.</p>
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

const page = (path: string, component: RouteComponent) =>
  createRoute({
    getParentRoute: () => root,
    path,
    component,
    // Filters are in the address; each page reads those that it knows.
    validateSearch: (search: Record<string, unknown>) => search,
  })

const tree = root.addChildren([
  page(
    "/",
    later(async () => (await import("./pages/home.tsx")).Home),
  ),
  page(
    "/payments",
    later(async () => (await import("./pages/payments.tsx")).Payments),
  ),
  page(
    "/payments/$id",
    later(async () => (await import("./pages/payment.tsx")).OnePayment),
  ),
  page(
    "/needs-you",
    later(async () => (await import("./pages/needs-you.tsx")).NeedsYou),
  ),
  page(
    "/checkouts",
    later(async () => (await import("./pages/checkouts.tsx")).Checkouts),
  ),
  page(
    "/checkouts/new",
    later(async () => (await import("./pages/new-checkout.tsx")).NewCheckout),
  ),
  page(
    "/checkouts/$id",
    later(async () => (await import("./pages/payment.tsx")).OnePayment),
  ),
  page(
    "/links",
    later(async () => (await import("./pages/links.tsx")).Links),
  ),
  page(
    "/links/new",
    later(async () => (await import("./pages/one-link.tsx")).NewLink),
  ),
  page(
    "/links/$id",
    later(async () => (await import("./pages/one-link.tsx")).OneLink),
  ),
  page(
    "/products",
    later(async () => (await import("./pages/products.tsx")).Products),
  ),
  page(
    "/products/new",
    later(async () => (await import("./pages/one-product.tsx")).NewProduct),
  ),
  page(
    "/products/$id",
    later(async () => (await import("./pages/one-product.tsx")).OneProduct),
  ),
  page(
    "/paywalls",
    later(async () => (await import("./pages/paywalls.tsx")).Paywalls),
  ),
  page(
    "/paywalls/new",
    later(async () => (await import("./pages/one-paywall.tsx")).NewPaywall),
  ),
  page(
    "/paywalls/$id",
    later(async () => (await import("./pages/one-paywall.tsx")).OnePaywall),
  ),
  page(
    "/webhooks",
    later(async () => (await import("./pages/webhooks.tsx")).Webhooks),
  ),
  page(
    "/webhooks/new",
    later(async () => (await import("./pages/new-webhook.tsx")).NewWebhook),
  ),
  page(
    "/webhooks/deliveries/$id",
    later(async () => (await import("./pages/delivery.tsx")).OneDelivery),
  ),
  page(
    "/webhooks/$id",
    later(async () => (await import("./pages/one-webhook.tsx")).OneWebhook),
  ),
  page(
    "/payouts",
    later(async () => (await import("./pages/payouts.tsx")).Payouts),
  ),
  page(
    "/payouts/$id",
    later(async () => (await import("./pages/one-payout.tsx")).OnePayout),
  ),
  page(
    "/developers",
    later(async () => (await import("./pages/developers.tsx")).Developers),
  ),
  page(
    "/team",
    later(async () => (await import("./pages/team.tsx")).Team),
  ),
  page(
    "/audit",
    later(async () => (await import("./pages/audit.tsx")).Audit),
  ),
  page(
    "/payout-address",
    later(async () => (await import("./pages/payout-address.tsx")).PayoutAddress),
  ),
  ...(isSandbox
    ? [
        page(
          "/dev/states",
          later(async () => (await import("./pages/dev-states.tsx")).DevStates),
        ),
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

if (firstMe) {
  followG()
  const element = document.getElementById("root")
  if (element) createRoot(element).render(<App />)
}
