/** Every operation of the API for merchants is used by a page of the console, or is named here with its reason. */
import { readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { expect, it } from "vitest"
import { root } from "../../server/test/e2e/program.ts"

/** The files of `web/src/console` that ask for the operations. */
const usedBy: Record<string, readonly string[]> = {
  "api/me.ts": ["readMe"],
  "api/needs.ts": ["listExceptionalPayments"],
  "api/overview.ts": ["readOverview"],
  "api/settings.ts": ["readSettings"],
  "api/story.ts": ["readTimeline", "readPaymentStory", "readCheckoutInConsole"],
  "pages/addresses.tsx": ["listDeposits", "exportDeposits", "listForeignTokens"],
  "pages/audit.tsx": ["listAuditEntries", "exportAuditEntries"],
  "pages/bundles.tsx": ["listBundles"],
  "pages/checkout-actions.tsx": ["closeCheckout"],
  "pages/checkouts.tsx": ["listCheckoutsInConsole"],
  "pages/delivery.tsx": ["readDelivery", "readEvent", "resendDelivery"],
  "pages/developers.tsx": [
    "createApiKey",
    "listApiKeys",
    "readKeyLimits",
    "changeKeyLimits",
    "rollAccountSecret",
    "revealAccountSecret",
  ],
  "pages/erasure.tsx": ["eraseCustomer", "listErasures"],
  "pages/links.tsx": ["listPaymentLinks"],
  "pages/listeners.tsx": ["listListeners", "endListener"],
  "pages/needs-you.tsx": ["returnPayments"],
  "pages/new-checkout.tsx": ["createCheckoutInConsole"],
  "pages/new-webhook.tsx": ["createWebhook"],
  "pages/no-merchant.tsx": ["createMerchant"],
  "ui/accept-invitation.tsx": ["acceptInvitation"],
  "pages/one-bundle.tsx": ["createBundle", "readBundle", "changeBundle", "deleteBundle", "listBundleFailures"],
  "pages/event-types.tsx": ["listEventTypes"],
  "pages/one-invoice.tsx": ["readInvoice"],
  "pages/requests.tsx": ["listRequests", "findRequests"],
  "ui/totals.tsx": ["sumTransactions"],
  "ui/webhook-stats.tsx": ["readWebhookStats"],
  "pages/notifications.tsx": ["readNotifications", "changeNotifications"],
  "pages/one-key.tsx": ["changeApiKey", "revokeApiKey", "rollApiKey", "adoptApiKey"],
  "pages/one-link.tsx": ["createPaymentLink", "readPaymentLink", "changePaymentLink", "deletePaymentLink"],
  "pages/one-payer.tsx": ["readPayer", "listGrants", "revokeGrant"],
  "pages/one-payout.tsx": ["readPayout", "listPayoutPayments"],
  "pages/one-paywall.tsx": ["createPaywall", "readPaywall", "changePaywall", "deletePaywall"],
  "pages/one-product.tsx": ["createProduct", "readProduct", "changeProduct", "deleteProduct"],
  "pages/one-split.tsx": ["createSplit", "readSplit", "changeSplit", "deleteSplit"],
  "pages/one-subscription.tsx": [
    "readSubscription",
    "changeSubscription",
    "pauseSubscription",
    "resumeSubscription",
    "cancelSubscription",
  ],
  "pages/one-webhook.tsx": [
    "readWebhook",
    "changeWebhook",
    "deleteWebhook",
    "testWebhook",
    "rollWebhookSecret",
    "recoverWebhook",
    "listDeliveries",
  ],
  "pages/payers.tsx": ["listPayers"],
  "pages/payments.tsx": ["listTransactions", "exportTransactions"],
  "pages/payout-address.tsx": ["changeSettings"],
  "pages/payouts.tsx": ["listPayouts", "exportPayouts"],
  "pages/paywalls.tsx": ["listPaywalls"],
  "pages/products.tsx": ["listProducts"],
  "pages/reports.tsx": [
    "readBalances",
    "reportBooks",
    "reportPayouts",
    "reportBalance",
    "reportTax",
    "exportCheckouts",
    "exportSubscriptions",
    "exportInvoices",
    "exportReceipts",
  ],
  "pages/sessions.tsx": ["listSessions", "revokeSession"],
  "pages/splits.tsx": ["listSplits"],
  "pages/subscriptions.tsx": ["listSubscriptions", "listInvoices"],
  "pages/system.tsx": ["readServiceHealth"],
  "pages/team.tsx": [
    "listMembers",
    "changeMember",
    "removeMember",
    "inviteMember",
    "listInvitations",
    "revokeInvitation",
  ],
  "pages/webhooks.tsx": ["listWebhooks", "listAllDeliveries"],
  "shell/find.tsx": ["search"],
  "shell/sign-out.ts": ["endOwnSession"],
  "shell/signed-out.tsx": ["beginSession"],
  "ui/decide-dialogs.tsx": ["acceptPayment", "returnPayment"],
  "ui/escrow-dialogs.tsx": ["refundPayment", "capturePayment"],
  "ui/escrow.tsx": ["voidPayment", "withdrawRefund"],
}

/** What no page asks for, and why. */
const reasons: Record<string, string> = {
  readConsoleConfig: "The server writes it into the page, so that no request is spent on it.",
  listRefunds: "A checkout's own answer has its refunds.",
  readRefund: "A checkout's own answer has its refunds.",
  listShares: "A payment's story has its shares, with the payouts that carried them.",
  changeCheckout: "It changes what a server noted on a checkout; a person has nothing to change there.",
  listEvents: "The deliveries show each event where it went; one event has a page.",
  listBooks: "The books are a file of Reports; the lists of payments and payouts show the same movements.",
  exportBooks: "Reports exports the same books by time.",
  listReceipts: "Reports exports them as the file that proves itself; the payments show the same money.",
  createListener: "Its secret is for the program that pulls; the command line makes it there.",
  pullDeliveries: "A program pulls it.",
  reportResults: "The program that pulled reports.",
  listChanges: "The console follows the stream of the same changes (api/stream.ts).",
}

interface Operation {
  operationId: string
}

const { paths } = JSON.parse(readFileSync(join(root, "docs/openapi.json"), "utf8")) as {
  paths: Record<string, Record<string, Operation>>
}
const operations = Object.entries(paths)
  .filter(([path]) => path.startsWith("/api/console/"))
  .flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => ({ path, method: method.toUpperCase(), operationId })),
  )

it("uses every operation, or says why not", () => {
  const named = [...Object.values(usedBy).flat(), ...Object.keys(reasons)].sort()
  expect(named).toEqual(operations.map(({ operationId }) => operationId).sort())
})

/** A file's text with that of the files that it imports by name: a path may be joined from the parts of both. */
function sourceOf(file: string): string {
  const path = join(root, "web/src/console", file)
  const source = readFileSync(path, "utf8")
  const imported = [...source.matchAll(/from "(\.[^"]+)"/g)].map(([, name = ""]) => join(dirname(path), name))
  return [source, ...imported.map(each => readFileSync(each, "utf8"))].join("\n")
}

it("asks for each in the file that is named", () => {
  const missing = Object.entries(usedBy).flatMap(([file, ids]) => {
    const source = sourceOf(file)
    return ids.filter(id => {
      const { path = "", method = "" } = operations.find(({ operationId }) => operationId === id) ?? {}
      const words = path.replace("/api/console/", "").split(/[/.]/)
      const isThere = words.every(word => word.startsWith("{") || source.includes(word))
      return !isThere || (method !== "GET" && !source.includes(`"${method}"`))
    })
  })
  expect(missing).toEqual([])
})
