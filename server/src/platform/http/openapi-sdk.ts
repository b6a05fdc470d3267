/** The names that SDKs give each operation: `x-sdk` in the document. */
import { goodJsonOf, type Operation } from "./openapi-document.ts"

/** By resource: each method, and the operation that it calls. */
const resources: Record<string, Record<string, string>> = {
  operation: {
    health: "health",
    readiness: "readiness",
    metrics: "metrics",
  },
  auth: {
    nonce: "createSignInNonce",
    verify: "signIn",
    signingKeys: "readSigningKeys",
    didDocument: "readDidDocument",
  },
  devices: {
    begin: "beginDeviceSignIn",
    ask: "askForDeviceKey",
  },
  console: {
    config: "readConsoleConfig",
  },
  sessions: {
    begin: "beginSession",
    end: "endOwnSession",
    list: "listSessions",
    revoke: "revokeSession",
  },
  settings: {
    get: "readSettings",
    update: "changeSettings",
    rollWebhookSecret: "rollAccountSecret",
    revealWebhookSecret: "revealAccountSecret",
  },
  me: {
    get: "readMe",
  },
  merchants: {
    create: "createMerchant",
  },
  changes: {
    list: "listChanges",
  },
  team: {
    list: "listMembers",
    update: "changeMember",
    remove: "removeMember",
    invite: "inviteMember",
    listInvitations: "listInvitations",
    revokeInvitation: "revokeInvitation",
    accept: "acceptInvitation",
  },
  apiKeys: {
    create: "createApiKey",
    list: "listApiKeys",
    update: "changeApiKey",
    roll: "rollApiKey",
    adopt: "adoptApiKey",
    getLimits: "readKeyLimits",
    updateLimits: "changeKeyLimits",
    revoke: "revokeApiKey",
  },
  paywalls: {
    create: "createPaywall",
    list: "listPaywalls",
    get: "readPaywall",
    update: "changePaywall",
    delete: "deletePaywall",
    listGrants: "listGrants",
    revokeGrant: "revokeGrant",
    show: "showPaywall",
    verifyAccess: "verifyAccess",
    subscribe: "subscribeToPaywall",
    pay: "submitPayment",
    getPayment: "readPayment",
    createAccessNonce: "createAccessNonce",
    proveAccess: "proveAccess",
    consume: "consumeCall",
  },
  checkouts: {
    create: "createCheckout",
    list: "listCheckouts",
    get: "readCheckout",
    update: "changeCheckout",
    close: "closeCheckout",
  },
  consoleCheckouts: {
    create: "createCheckoutInConsole",
    list: "listCheckoutsInConsole",
    export: "exportCheckouts",
    get: "readCheckoutInConsole",
  },
  pay: {
    start: "startLinkCheckout",
    status: "readPayStatus",
    confirm: "confirmPayment",
    answer: "answerPayerFields",
    authorize: "authorizePayment",
    createReturnNonce: "createReturnNonce",
    nameReturnAddress: "nameReturnAddress",
  },
  products: {
    create: "createProduct",
    list: "listProducts",
    get: "readProduct",
    update: "changeProduct",
    delete: "deleteProduct",
  },
  paymentLinks: {
    create: "createPaymentLink",
    list: "listPaymentLinks",
    get: "readPaymentLink",
    update: "changePaymentLink",
    delete: "deletePaymentLink",
  },
  subscriptions: {
    list: "listSubscriptions",
    export: "exportSubscriptions",
    get: "readSubscription",
    update: "changeSubscription",
    pause: "pauseSubscription",
    resume: "resumeSubscription",
    cancel: "cancelSubscription",
  },
  invoices: {
    list: "listInvoices",
    export: "exportInvoices",
    get: "readInvoice",
  },
  transactions: {
    list: "listTransactions",
    totals: "sumTransactions",
    export: "exportTransactions",
  },
  payments: {
    list: "listExceptionalPayments",
    accept: "acceptPayment",
    return: "returnPayment",
    returnMany: "returnPayments",
    capture: "capturePayment",
    void: "voidPayment",
    listShares: "listShares",
    get: "readPaymentStory",
  },
  payers: {
    list: "listPayers",
    get: "readPayer",
  },
  health: {
    get: "readServiceHealth",
  },
  search: {
    find: "search",
  },
  timeline: {
    get: "readTimeline",
  },
  payouts: {
    list: "listPayouts",
    export: "exportPayouts",
    get: "readPayout",
    listPayments: "listPayoutPayments",
  },
  refunds: {
    create: "refundPayment",
    list: "listRefunds",
    get: "readRefund",
    withdraw: "withdrawRefund",
  },
  webhooks: {
    create: "createWebhook",
    list: "listWebhooks",
    get: "readWebhook",
    update: "changeWebhook",
    delete: "deleteWebhook",
    test: "testWebhook",
    rollSecret: "rollWebhookSecret",
    recover: "recoverWebhook",
    listDeliveries: "listDeliveries",
    stats: "readWebhookStats",
  },
  deliveries: {
    list: "listAllDeliveries",
    get: "readDelivery",
    resend: "resendDelivery",
  },
  listeners: {
    create: "createListener",
    list: "listListeners",
    delete: "endListener",
    pull: "pullDeliveries",
    report: "reportResults",
  },
  events: {
    list: "listEvents",
    get: "readEvent",
    listTypes: "listEventTypes",
  },
  splits: {
    create: "createSplit",
    list: "listSplits",
    get: "readSplit",
    update: "changeSplit",
    delete: "deleteSplit",
  },
  overview: {
    get: "readOverview",
    getBalances: "readBalances",
  },
  books: {
    list: "listBooks",
    export: "exportBooks",
  },
  erasures: {
    create: "eraseCustomer",
    list: "listErasures",
  },
  reports: {
    books: "reportBooks",
    payouts: "reportPayouts",
    balance: "reportBalance",
    tax: "reportTax",
  },
  receipts: {
    list: "listReceipts",
    export: "exportReceipts",
    readBatch: "readReceiptBatch",
  },
  deposits: {
    list: "listDeposits",
    export: "exportDeposits",
    terms: "showDepositTerms",
  },
  foreignTokens: {
    list: "listForeignTokens",
  },
  bundles: {
    create: "createBundle",
    list: "listBundles",
    get: "readBundle",
    update: "changeBundle",
    delete: "deleteBundle",
    listFailures: "listBundleFailures",
  },
  agents: {
    buyBySlug: "buyBySlug",
    buyPaywall: "buyPaywall",
    getPayment: "readAgentPayment",
    discover: "discoverOffers",
  },
  facilitator: {
    supported: "listSupported",
    verify: "verifyX402Payment",
    settle: "settleX402Payment",
    getSettlement: "readX402Settlement",
  },
  subscriber: {
    createNonce: "createSubscriberNonce",
    signIn: "signInSubscriber",
    listSubscriptions: "listOwnSubscriptions",
    listInvoices: "listOwnInvoices",
    cancel: "cancelOwnSubscription",
    resume: "resumeOwnSubscription",
  },
  requests: {
    list: "listRequests",
    find: "findRequests",
  },
  notifications: {
    get: "readNotifications",
    update: "changeNotifications",
  },
  audit: {
    list: "listAuditEntries",
    export: "exportAuditEntries",
  },
}

const methods = new Map(
  Object.entries(resources).flatMap(([resource, calls]) =>
    Object.entries(calls).map(([method, operation]) => [operation, { resource, method }] as const),
  ),
)

/**
 * The operation with `x-sdk`: its `resource` and `method`, and `paginated` if the answer has a `next`. `envelope` is
 * the dotted path to the main object, if that is only a part of the answer.
 */
export function withSdk(operation: Operation): Operation {
  const call = methods.get(operation.operationId ?? "")
  if (!call) return operation
  const fields = goodJsonOf(operation)?.properties as Record<string, { properties?: object }> | undefined
  const paginated = fields?.next ? { paginated: true } : {}
  return { ...operation, "x-sdk": { ...call, ...paginated, ...envelopeOf(fields) } }
}

function envelopeOf(fields: Record<string, { properties?: object }> = {}): { envelope?: string } {
  const others = Object.keys(fields).filter(name => !["total", "totalIsLeast", "next"].includes(name))
  const [name] = others
  if (name === undefined || others.length > 1 || (name !== "data" && !fields.next)) return {}
  const inner = fields.next ? Object.keys(fields[name]?.properties ?? {}) : []
  return { envelope: [name, ...inner].join(".") }
}
