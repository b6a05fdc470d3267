// Made from docs/openapi.json by `npm run types`; do not edit.
import type * as api from "../../tools/openapi/api.d.ts"
import type { Pages } from "./pages.ts"
import type { RequestOptions } from "./request.ts"

type Query<O extends keyof api.operations> = NonNullable<api.operations[O]["parameters"]["query"]>
type Body<O extends keyof api.operations> = api.operations[O] extends {
  requestBody?: { content: { "application/json": infer B } }
}
  ? B
  : never
type Good<R> = { [S in keyof R]: S extends 200 | 201 | 202 ? R[S] : never }[keyof R]
type Answer<O extends keyof api.operations> =
  Good<api.operations[O]["responses"]> extends { content: { "application/json": infer A } } ? A : never
/** What a part of an answer is, by its dotted path. */
type At<A, P extends string> = P extends `${infer K}.${infer R}`
  ? K extends keyof A
    ? At<A[K], R>
    : never
  : P extends keyof A
    ? A[P]
    : never
type Item<O extends keyof api.operations, P extends string> =
  At<Answer<O>, P> extends readonly (infer T)[] ? T : never

/**
 * Each operation: its method, its path, and after a space each what else is known: `key` takes an Idempotency-Key,
 * `public` needs no credential, `wallet` takes the token of a wallet, `body` and `query` take one as the last argument before the
 * options, `csv` answers text, `list=PATH` has pages whose rows are at PATH, and `at=PATH` answers what is at PATH.
 */
export const table = {
  auth: {
    nonce: "POST /api/auth/nonce public body",
    verify: "POST /api/auth/verify public body",
  },
  console: {
    config: "GET /api/console/config public",
  },
  sessions: {
    begin: "POST /api/console/session public body",
    end: "DELETE /api/console/session public",
    list: "GET /api/console/sessions at=data",
    revoke: "DELETE /api/console/sessions/{id}",
  },
  devices: {
    begin: "POST /api/device public body",
    ask: "POST /api/device/token public body",
  },
  settings: {
    get: "GET /api/console/settings",
    update: "PUT /api/console/settings body",
    rollWebhookSecret: "POST /api/console/settings/webhook-secret key at=data",
    revealWebhookSecret: "POST /api/console/settings/webhook-secret/reveal key at=data",
  },
  apiKeys: {
    create: "POST /api/console/api-keys key body",
    list: "GET /api/console/api-keys query list=data",
    update: "PUT /api/console/api-keys/{id} body",
    revoke: "DELETE /api/console/api-keys/{id}",
    roll: "POST /api/console/api-keys/{id}/roll key body",
    adopt: "POST /api/console/api-keys/{id}/adopt body",
    getLimits: "GET /api/console/settings/key-limits",
    updateLimits: "PUT /api/console/settings/key-limits body",
  },
  me: {
    get: "GET /api/console/me",
  },
  merchants: {
    create: "POST /api/console/merchants body",
  },
  team: {
    accept: "POST /api/console/team/accept body",
    list: "GET /api/console/team query list=data",
    update: "PUT /api/console/team/{id} body",
    remove: "DELETE /api/console/team/{id}",
    invite: "POST /api/console/team/invitations body",
    listInvitations: "GET /api/console/team/invitations query list=data",
    revokeInvitation: "DELETE /api/console/team/invitations/{id}",
  },
  notifications: {
    get: "GET /api/console/notifications at=data",
    update: "PUT /api/console/notifications body at=data",
  },
  paywalls: {
    create: "POST /api/console/paywalls key body",
    list: "GET /api/console/paywalls query list=paywalls",
    get: "GET /api/console/paywalls/{id}",
    update: "PUT /api/console/paywalls/{id} body",
    delete: "DELETE /api/console/paywalls/{id}",
    listGrants: "GET /api/console/paywalls/{id}/grants query list=data",
    revokeGrant: "DELETE /api/console/paywalls/{id}/grants/{grantId} body",
    show: "GET /api/paywalls/{id} public",
    verifyAccess: "GET /api/paywalls/{id}/verify query",
    subscribe: "POST /api/paywalls/{id}/subscribe public body",
    pay: "POST /api/paywalls/{id}/pay public body",
    getPayment: "GET /api/paywalls/{id}/payments/{txHash} public query",
    createAccessNonce: "POST /api/paywalls/{id}/access/nonce public body",
    proveAccess: "POST /api/paywalls/{id}/access public body",
    consume: "POST /api/paywalls/{id}/consume key body",
  },
  checkouts: {
    create: "POST /api/checkouts key body",
    list: "GET /api/checkouts query list=data",
    get: "GET /api/checkouts/{id}",
    update: "PUT /api/console/checkouts/{id} body",
    close: "DELETE /api/console/checkouts/{id}",
  },
  consoleCheckouts: {
    create: "POST /api/console/checkouts key body",
    list: "GET /api/console/checkouts query list=data",
    get: "GET /api/console/checkouts/{id}",
    export: "GET /api/console/checkouts.csv query csv",
  },
  pay: {
    start: "POST /api/pay/sessions public body",
    status: "GET /api/pay/status/{id} public query",
    confirm: "POST /api/pay/confirm public body",
    answer: "POST /api/pay/payer-info public body",
    authorize: "POST /api/pay/authorize public body",
    createReturnNonce: "POST /api/pay/return-address/nonce public body",
    nameReturnAddress: "POST /api/pay/return-address public body",
  },
  products: {
    create: "POST /api/console/products key body",
    list: "GET /api/console/products query list=data",
    get: "GET /api/console/products/{id}",
    update: "PUT /api/console/products/{id} body",
    delete: "DELETE /api/console/products/{id}",
  },
  paymentLinks: {
    create: "POST /api/console/payment-links key body",
    list: "GET /api/console/payment-links query list=data",
    get: "GET /api/console/payment-links/{id}",
    update: "PUT /api/console/payment-links/{id} body",
    delete: "DELETE /api/console/payment-links/{id}",
  },
  subscriptions: {
    list: "GET /api/console/subscriptions query list=data",
    export: "GET /api/console/subscriptions.csv query csv",
    get: "GET /api/console/subscriptions/{id}",
    update: "PUT /api/console/subscriptions/{id} body",
    pause: "POST /api/console/subscriptions/{id}/pause key",
    resume: "POST /api/console/subscriptions/{id}/resume key",
    cancel: "POST /api/console/subscriptions/{id}/cancel key body",
  },
  invoices: {
    list: "GET /api/console/invoices query list=data",
    export: "GET /api/console/invoices.csv query csv",
    get: "GET /api/console/invoices/{id}",
  },
  transactions: {
    list: "GET /api/console/transactions query list=data",
    export: "GET /api/console/transactions.csv query csv",
    totals: "GET /api/console/transactions/totals query at=data",
  },
  payments: {
    list: "GET /api/console/payments query list=data",
    accept: "POST /api/console/payments/{id}/accept key body",
    return: "POST /api/console/payments/{id}/return key body",
    returnMany: "POST /api/console/payments/return key body at=data",
    capture: "POST /api/console/payments/capture key body",
    void: "POST /api/console/payments/void key body",
    listShares: "GET /api/console/payments/{id}/shares at=data",
    get: "GET /api/console/payments/{id}",
  },
  refunds: {
    create: "POST /api/console/payments/refund key body",
    list: "GET /api/console/payments/refunds query list=data",
    get: "GET /api/console/payments/refunds/{id}",
    withdraw: "DELETE /api/console/payments/refunds/{id}",
  },
  webhooks: {
    create: "POST /api/console/webhooks key body at=data",
    list: "GET /api/console/webhooks query list=data.webhooks",
    get: "GET /api/console/webhooks/{id} at=data",
    update: "PUT /api/console/webhooks/{id} body at=data",
    delete: "DELETE /api/console/webhooks/{id} at=data",
    test: "POST /api/console/webhooks/{id}/test key body at=data",
    rollSecret: "POST /api/console/webhooks/{id}/roll-secret key at=data",
    recover: "POST /api/console/webhooks/{id}/recover key body at=data",
    listDeliveries: "GET /api/console/webhooks/{id}/deliveries query list=data",
    stats: "GET /api/console/webhooks/{id}/stats query at=data",
  },
  deliveries: {
    list: "GET /api/console/deliveries query list=data",
    get: "GET /api/console/deliveries/{id} at=data",
    resend: "POST /api/console/deliveries/{id}/resend key at=data",
  },
  events: {
    listTypes: "GET /api/console/event-types at=data",
    list: "GET /api/console/events query list=data",
    get: "GET /api/console/events/{id} at=data",
  },
  listeners: {
    create: "POST /api/console/listeners key body",
    list: "GET /api/console/listeners query list=data",
    delete: "DELETE /api/console/listeners/{id}",
    pull: "GET /api/console/listeners/{id}/deliveries query at=data",
    report: "POST /api/console/listeners/{id}/results body",
  },
  splits: {
    create: "POST /api/console/splits key body",
    list: "GET /api/console/splits query list=data",
    get: "GET /api/console/splits/{id}",
    update: "PUT /api/console/splits/{id} body",
    delete: "DELETE /api/console/splits/{id}",
  },
  books: {
    list: "GET /api/console/books query list=data",
    export: "GET /api/console/books.csv query csv",
  },
  reports: {
    books: "GET /api/console/reports/books.csv query csv",
    payouts: "GET /api/console/reports/payouts.csv query csv",
    balance: "GET /api/console/reports/balance.csv query csv",
    tax: "GET /api/console/reports/tax.csv query csv",
  },
  receipts: {
    list: "GET /api/console/receipts query list=data",
    export: "GET /api/console/receipts.ndjson query",
  },
  erasures: {
    create: "POST /api/console/erasures body",
    list: "GET /api/console/erasures query list=data",
  },
  overview: {
    get: "GET /api/console/overview query",
    getBalances: "GET /api/console/balances at=data",
  },
  deposits: {
    list: "GET /api/console/deposits query list=data",
    export: "GET /api/console/deposits.csv query csv",
    terms: "GET /api/deposits/{address} public",
  },
  foreignTokens: {
    list: "GET /api/console/foreign-tokens query list=data",
  },
  bundles: {
    create: "POST /api/console/bundles key body",
    list: "GET /api/console/bundles query list=data",
    get: "GET /api/console/bundles/{id}",
    update: "PUT /api/console/bundles/{id} body",
    delete: "DELETE /api/console/bundles/{id}",
    listFailures: "GET /api/console/bundles/{id}/failures query list=data",
  },
  agents: {
    buyBySlug: "GET /api/p/{slug} public query",
    buyPaywall: "POST /api/agent/paywalls/{id}/settle public body",
    getPayment: "GET /api/agent/payments/{id} public",
    discover: "GET /.well-known/x402 public",
  },
  facilitator: {
    supported: "GET /x402/supported public",
    verify: "POST /x402/verify body",
    settle: "POST /x402/settle body",
    getSettlement: "GET /x402/settlements/{from}/{nonce}",
  },
  subscriber: {
    createNonce: "POST /api/subscriptions/nonce public body",
    signIn: "POST /api/subscriptions/token public body",
    listSubscriptions: "GET /api/subscriptions wallet query list=data",
    listInvoices: "GET /api/subscriptions/{id}/invoices wallet query list=data",
    cancel: "POST /api/subscriptions/{id}/cancel wallet body",
    resume: "POST /api/subscriptions/{id}/resume wallet body",
  },
  audit: {
    list: "GET /api/console/audit query list=data",
    export: "GET /api/console/audit.csv query csv",
  },
  requests: {
    list: "GET /api/console/requests query list=data",
    find: "GET /api/console/requests/{id} at=data",
  },
  timeline: {
    get: "GET /api/console/timeline/{id}",
  },
  payouts: {
    list: "GET /api/console/payouts query list=data",
    export: "GET /api/console/payouts.csv query csv",
    get: "GET /api/console/payouts/{id}",
    listPayments: "GET /api/console/payouts/{id}/payments query list=data",
  },
  search: {
    find: "GET /api/console/search query at=data",
  },
  payers: {
    list: "GET /api/console/payers query list=data",
    get: "GET /api/console/payers/{payer}",
  },
  health: {
    get: "GET /api/console/health",
  },
  changes: {
    list: "GET /api/console/changes query list=undefined",
  },
} as const

/** The operations of the service, by what they are about. */
export interface Resources {
  auth: {
    /** Issues the nonce for one sign-in, valid for ten minutes, and the message to sign */
    nonce(body?: Body<"createSignInNonce">, options?: RequestOptions): Promise<api.SignInMessage>
    /** Signs a wallet in, for an hour. The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/auth/verify`, a network of this service, the nonce, and the single resource `urn:sluice:sign-in`. Contract wallets can sign too (ERC-1271), even before they are deployed (ERC-6492). A person is identified by wallet and network. Signing in creates no merchant; the first request to the console does, or `POST /api/console/merchants`. */
    verify(body: Body<"signIn">, options?: RequestOptions): Promise<api.SignIn>
  }
  console: {
    /** What a console needs before anyone is signed in */
    config(options?: RequestOptions): Promise<api.ConsoleConfig>
  }
  sessions: {
    /** Signs a browser in to the console with a wallet's signature. Only for the console's own page (`Origin` must be that of `CONSOLE_URL`). The message comes from `POST /api/auth/nonce`, as for `POST /api/auth/verify`. If the console has its own host, the message names that host. Sets the session's cookie, and ends the browser's previous session. Signing in creates no merchant. */
    begin(body: Body<"beginSession">, options?: RequestOptions): Promise<api.SessionBegun>
    /** Signs this browser out. Ends the cookie's session and removes the cookie. Without a cookie it does nothing. */
    end(options?: RequestOptions): Promise<api.SignedOut>
    /** The browsers in which you are signed in, newest first */
    list(options?: RequestOptions): Promise<At<api.SessionList, "data">>
    /** Signs one of your browsers out immediately */
    revoke(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  devices: {
    /** Starts the sign-in of a program that has no browser. Show the person `user_code` and `verification_uri`, and poll `POST /api/device/token` every `interval` seconds. The person opens the page, signs in and types the code. The page shows the machine's name, its IP address and the scopes, and the person approves or denies. No URL contains the code, so a person who types it read it on their own machine. */
    begin(body: Body<"beginDeviceSignIn">, options?: RequestOptions): Promise<api.DeviceBegun>
    /** Polls for the key of a program that signs in; the key is returned only once. Until the person has decided, the answer is 400 `authorization_pending`. The key is named `CLI, HOST, PERSON` and lasts 90 days. It ends immediately when the person leaves the merchant, or gets a role that may not grant its scopes. It can be renamed and revoked, but not changed or rolled. */
    ask(body: Body<"askForDeviceKey">, options?: RequestOptions): Promise<api.DeviceKey>
  }
  settings: {
    /** The merchant's settings */
    get(options?: RequestOptions): Promise<api.Settings>
    /** Changes the given settings. In live mode a new payout address takes effect after 24 hours, and is shown until then. While the wallet lock is on, the change needs the signature of the payout address that has been in effect longest. If the replaced address itself signs, the change takes effect immediately. Switching the lock on needs the signature of every payout address, even on networks that are not served now. A new payout address or `approver` gives every paywall a new receiving address; money that reaches the old one more than an hour later is an exception. */
    update(body: Body<"changeSettings">, options?: RequestOptions): Promise<api.Settings>
    /** Creates a new secret for callback URLs and shows it only once. It signs events sent to the `callbackUrl` of a session. For 24 hours the previous secret signs too. `settings.webhook_changed` notifies every endpoint. */
    rollWebhookSecret(options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.AccountSecretRolled, "data">>
    /** Shows the secret for callback URLs, once. Every account starts with a secret, which can be read here only once. Afterwards, and after a roll (whose answer shows the new secret), the answer is 409. */
    revealWebhookSecret(options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.AccountSecret, "data">>
  }
  apiKeys: {
    /** Creates an API key, and shows it only once. Members can grant only scopes within their own role. Only an owner can grant `console`, because it includes splits. A key with `catalog` can't set `splitId` or `originUrl`. */
    create(body: Body<"createApiKey">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.ApiKeyCreated>
    /** The API keys, without the secrets */
    list(query?: Query<"listApiKeys">, options?: RequestOptions): Pages<Item<"listApiKeys", "data">, api.ApiKeyList>
    /** Changes the given fields of a key, starting with its next request. Null removes an expiry, the addresses or a limit. To change more than the name, you must have the rights of all scopes that the key will have. With the wallet lock on, a key that will have `money` or `console` needs the payout wallet's signature. */
    update(id: string, body: Body<"changeApiKey">, options?: RequestOptions): Promise<api.ApiKeyChanged>
    /** Revokes an API key immediately */
    revoke(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Gives a key a new secret, and shows it only once. The key keeps its id, its limits and its entries in the audit log. For `graceSeconds`, until `previousExpiresAt`, the previous secret works too. To roll a key, you must have the rights of all its scopes. With the wallet lock on, a key with `money` or `console` needs the payout wallet's signature. */
    roll(id: string, body: Body<"rollApiKey">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.ApiKeyCreated>
    /** Keeps a key whose creator may no longer grant it. Such a key has `ending`: why and when it ends. To adopt it, you must have the rights of all its scopes; you then count as its creator. The previous creator may still know the secret, so roll the key too. With the wallet lock on, a key with `money` or `console` needs the payout wallet's signature. */
    adopt(id: string, body?: Body<"adoptApiKey">, options?: RequestOptions): Promise<api.ApiKeyChanged>
    /** How much all API keys together may send back per day */
    getLimits(options?: RequestOptions): Promise<api.KeyLimits>
    /** Changes the given limits, starting with the next refund or return by a key. Each key can have its own limits too. Refunds and returns by people do not count. With the wallet lock on, raising or removing a limit needs the payout wallet's signature. */
    updateLimits(body: Body<"changeKeyLimits">, options?: RequestOptions): Promise<api.KeyLimits>
  }
  me: {
    /** Who is signed in, and the merchants that this person is a member of */
    get(options?: RequestOptions): Promise<api.Me>
  }
  merchants: {
    /** Creates a merchant, owned by the person who creates it. If sign-up is by invitation, each invited person can create one merchant. The first request to the console with the bearer token of a person who was never a member also creates one. */
    create(body: Body<"createMerchant">, options?: RequestOptions): Promise<api.Membership>
  }
  team: {
    /** Makes the signed-in person a member, with the token of an invitation. Only the invited wallet can accept, or the person whose identity provider has verified the invited e-mail address (`email_verified`). The invitation works once, for seven days, while the member who sent it may still invite. */
    accept(body: Body<"acceptInvitation">, options?: RequestOptions): Promise<api.Membership>
    /** The members of the merchant and their roles */
    list(query?: Query<"listMembers">, options?: RequestOptions): Pages<Item<"listMembers", "data">, api.TeamMemberList>
    /** Changes a member's role, starting with the member's next request. The last owner's role can't change. A member with the role support accepts, returns, refunds, captures and voids up to `moneyPerDay`, and nothing while it is 0. API keys that the member may no longer grant end in seven days, unless another member adopts them. Device keys end immediately. While the wallet lock is on, a change to owner, admin or finance, or a higher `moneyPerDay`, needs the payout wallet's signature. */
    update(id: string, body: Body<"changeMember">, options?: RequestOptions): Promise<api.TeamMember>
    /** Removes a member, starting with the member's next request; any member may leave. The last owner can't leave or be removed. The member's API keys end in seven days, unless another member adopts them; device keys end immediately. */
    remove(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Invites a person by e-mail address or wallet, and shows the token only once. The invitation works once, for seven days, for the invited wallet or for the person whose identity provider has verified the address. While the wallet lock is on, an invitation as owner, admin or finance needs the payout wallet's signature. */
    invite(body: Body<"inviteMember">, options?: RequestOptions): Promise<api.TeamInvitationCreated>
    /** The invitations that can still be accepted, without the tokens */
    listInvitations(query?: Query<"listInvitations">, options?: RequestOptions): Pages<Item<"listInvitations", "data">, api.TeamInvitationList>
    /** Revokes an invitation immediately */
    revokeInvitation(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  notifications: {
    /** The notices that you get by mail at this merchant */
    get(options?: RequestOptions): Promise<At<api.Notifications, "data">>
    /** Switches your own mail notices on and off. You can't switch off notices of changed payout addresses, approvers, wallet locks, contact addresses and owners, or of your own sign-ins and memberships. You get at most 20 mails an hour; further notices arrive as one digest. */
    update(body: Body<"changeNotifications">, options?: RequestOptions): Promise<At<api.Notifications, "data">>
  }
  paywalls: {
    /** Creates a paywall with its own receiving address */
    create(body: Body<"createPaywall">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.PaywallCreated>
    /** All paywalls, including inactive ones */
    list(query?: Query<"listPaywalls">, options?: RequestOptions): Pages<Item<"listPaywalls", "paywalls">, api.PaywallList>
    /** One paywall with every field */
    get(id: string, options?: RequestOptions): Promise<api.Paywall>
    /** Changes the given fields. Buyers who paid before the change, or within an hour after it, may have paid the old price. */
    update(id: string, body: Body<"changePaywall">, options?: RequestOptions): Promise<api.PaywallChanged>
    /** Deactivates a paywall; granted access stays */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** The access that a paywall has granted */
    listGrants(id: string, query?: Query<"listGrants">, options?: RequestOptions): Pages<Item<"listGrants", "data">, api.GrantList>
    /** Revokes a grant, removing exactly the time that it added */
    revokeGrant(id: string, grantId: string, body?: Body<"revokeGrant">, options?: RequestOptions): Promise<api.Deleted>
    /** What a buyer needs in order to pay */
    show(id: string, options?: RequestOptions): Promise<api.PaywallOffer>
    /** Whether an address has access now. Reports what an address has paid for, not who sends the request. If the paywall has a `subscriptionProductId`, a subscription to that product gives access until its grace period ends, and `txHash` is its last payment. A request with an API key counts against the key's rate limit. */
    verifyAccess(id: string, query: Query<"verifyAccess">, options?: RequestOptions): Promise<api.PaywallAccess>
    /** Starts a checkout of the subscription that opens a paywall. For a paywall with a `subscriptionProductId`. The checkout pays the first period of a subscription, which belongs to the paying wallet, and leads back to the paywall's page. */
    subscribe(id: string, body?: Body<"subscribeToPaywall">, options?: RequestOptions): Promise<api.PaywallPurchase>
    /** Submits the transaction hash of a payment. A hint to find the payment sooner. Submitting it again during verification is a no-op. */
    pay(id: string, body: Body<"submitPayment">, options?: RequestOptions): Promise<api.PaymentSubmitted>
    /** The status of a submitted payment. With `wait`, the answer comes as soon as the payment is no longer `verifying`, or immediately if too many requests wait. The request counts once against the rate limit. */
    getPayment(id: string, txHash: string, query: Query<"readPayment">, options?: RequestOptions): Promise<api.PaywallPayment>
    /** Issues the nonce for one proof, valid for ten minutes, and the message to sign */
    createAccessNonce(id: string, body?: Body<"createAccessNonce">, options?: RequestOptions): Promise<api.SignInMessage>
    /** Issues an access token to a caller who proves that they own an address with access. The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/paywalls/<id>/access`, the paywall's network, the nonce, and the single resource `urn:sluice:paywall:<id>`. The token is valid for at most five minutes, and never longer than the access. It uses up no call of a `per_call` grant; `consume` does. */
    proveAccess(id: string, body: Body<"proveAccess">, options?: RequestOptions): Promise<api.Access>
    /** Uses up one paid call of an address. For a `per_call` paywall, each payment is one call. Other paywalls don't count calls: all are allowed while the access lasts, and `remaining` is null. Access through a subscription has unlimited calls, and uses up no paid calls. */
    consume(id: string, body: Body<"consumeCall">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.CallConsumed>
  }
  checkouts: {
    /** Starts a checkout with its own receiving address */
    create(body: Body<"createCheckout">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Checkout>
    /** All checkouts, newest first. Leaves out unpaid checkouts that ended more than 30 days ago. You can still read them by id; a checkout that is read is listed again for a day. */
    list(query?: Query<"listCheckouts">, options?: RequestOptions): Pages<Item<"listCheckouts", "data">, api.CheckoutList>
    /** One checkout with every field */
    get(id: string, options?: RequestOptions): Promise<api.Checkout>
    /** Changes the given fields; the payer's price stays the same */
    update(id: string, body: Body<"changeCheckout">, options?: RequestOptions): Promise<api.Checkout>
    /** Ends a checkout that has no payment in progress. The checkout expires immediately. Money that arrives later is still found, and counts as late. */
    close(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  consoleCheckouts: {
    /** Starts a checkout with its own receiving address */
    create(body: Body<"createCheckoutInConsole">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Checkout>
    /** All checkouts, newest first. Leaves out unpaid checkouts that ended more than 30 days ago. You can still read them by id; a checkout that is read is listed again for a day. */
    list(query?: Query<"listCheckoutsInConsole">, options?: RequestOptions): Pages<Item<"listCheckoutsInConsole", "data">, api.CheckoutList>
    /** One checkout with every field */
    get(id: string, options?: RequestOptions): Promise<api.Checkout>
    /** All checkouts that match the filter, as CSV */
    export(query?: Query<"exportCheckouts">, options?: RequestOptions): Promise<string>
  }
  pay: {
    /** Starts a checkout from a payment link */
    start(body: Body<"startLinkCheckout">, options?: RequestOptions): Promise<api.LinkCheckout>
    /** The status of a checkout, and everything needed to pay it. With `wait`, the answer comes as soon as the checkout is no longer `pending` or `verifying`, or immediately if too many requests wait. The request counts once against the rate limit. With `txHash`, the answer also comes when that submission is refused. Anyone may submit a hash, so a refused hash does not change the checkout. While less than the amount has arrived, the checkout is `verifying` and `message` names the missing amount. After `expiresAt`, or after the merchant deletes the checkout, `message` asks for no money and `payTo` is left out. The status stays until all blocks up to then are read, usually for less than a minute. It then becomes `expired` with the exception `underpaid`, and the money that arrived waits for the merchant to accept or return it. */
    status(id: string, query?: Query<"readPayStatus">, options?: RequestOptions): Promise<api.PayStatus>
    /** Submits the transaction hash of a checkout's payment. A hint to find the transfer sooner; the checkout would be confirmed without it. `GET /api/pay/status/:id?txHash=` returns the result for the hash. A wrong hash leaves the checkout payable and emits no event. When its time runs out, a checkout ends as `failed` if only refused hashes were submitted, and as `expired` if none was submitted. */
    confirm(body: Body<"confirmPayment">, options?: RequestOptions): Promise<api.PaymentConfirmed>
    /** Stores the payer's answers before the payment. For payments that are not submitted as a hash; with a hash, send the answers to `POST /api/pay/confirm`. The newest answers count, until the checkout is confirmed. */
    answer(body: Body<"answerPayerFields">, options?: RequestOptions): Promise<api.PayerFieldsAnswered>
    /** Pays a checkout with a signed authorization; the service pays the gas. The payer signs `TransferWithAuthorization` (EIP-3009) in the token's EIP-712 domain, to `payTo` and for exactly the missing amount; the service relays it. Sending the same authorization again returns the same answer and never makes a second transfer. `validBefore` is at most two hours after the checkout ends; the checkout's end is a good choice. `GET /api/pay/status/:id` returns the result. A failed authorization is public, and anyone can submit it until `validBefore`. To prevent a double payment, the next authorization must have the same `from` and `nonce`, unless the failed one was cancelled on chain or has expired. A checkout with `capture` other than `direct` needs a `ReceiveWithAuthorization` with the fields that its status answer lists, and only this service can execute it. */
    authorize(body: Body<"authorizePayment">, options?: RequestOptions): Promise<api.PaymentAuthorized>
    /** Issues the nonce for one signature, valid for ten minutes */
    createReturnNonce(body: Body<"createReturnNonce">, options?: RequestOptions): Promise<api.ReturnAddressMessage>
    /** Names the address to which open money should be returned. The wallet that sent the money signs a message (EIP-4361; a contract wallet's signature is verified through ERC-1271) that names the domain of `BASE_URL`, the URI `<BASE_URL>/api/pay/return-address`, the network, the nonce, and the single resource `urn:sluice:return:<id>:<address in lower case>`. The merchant decides whether the money is returned. The newest signature counts. A payer who paid from an exchange can't sign for its wallet, and must ask the merchant. */
    nameReturnAddress(body: Body<"nameReturnAddress">, options?: RequestOptions): Promise<api.ReturnAddress>
  }
  products: {
    /** Creates a product with a price */
    create(body: Body<"createProduct">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Product>
    /** All products, including inactive ones */
    list(query?: Query<"listProducts">, options?: RequestOptions): Pages<Item<"listProducts", "data">, api.ProductList>
    /** One product */
    get(id: string, options?: RequestOptions): Promise<api.Product>
    /** Changes the given fields; checkouts already started keep their price */
    update(id: string, body: Body<"changeProduct">, options?: RequestOptions): Promise<api.Product>
    /** Deactivates a product; has no effect on an inactive product. No new checkout of the product can be created. Payment links keep the price from their creation and continue to sell, so switch them off too. The links of a product with `billingInterval` end with the product. */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  paymentLinks: {
    /** Creates a payment link */
    create(body: Body<"createPaymentLink">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.PaymentLink>
    /** All payment links, including inactive ones */
    list(query?: Query<"listPaymentLinks">, options?: RequestOptions): Pages<Item<"listPaymentLinks", "data">, api.PaymentLinkList>
    /** One payment link */
    get(id: string, options?: RequestOptions): Promise<api.PaymentLink>
    /** Changes the given fields; checkouts already started stay unchanged */
    update(id: string, body: Body<"changePaymentLink">, options?: RequestOptions): Promise<api.PaymentLink>
    /** Deactivates a payment link; checkouts already started can still be paid */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  subscriptions: {
    /** All subscriptions that have started, newest first */
    list(query?: Query<"listSubscriptions">, options?: RequestOptions): Pages<Item<"listSubscriptions", "data">, api.SubscriptionList>
    /** All subscriptions that match the filter, as CSV */
    export(query?: Query<"exportSubscriptions">, options?: RequestOptions): Promise<string>
    /** One subscription with its invoices */
    get(id: string, options?: RequestOptions): Promise<api.SubscriptionWithInvoices>
    /** Moves a subscription to another product, starting with its next invoice */
    update(id: string, body: Body<"changeSubscription">, options?: RequestOptions): Promise<api.Subscription>
    /** Pauses a subscription. Its open invoice is closed, and no invoice is created until it is resumed. The subscriber keeps paid access. */
    pause(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Subscription>
    /** Resumes a paused subscription, or keeps a subscription that would end with its period. If the paid period has ended, periods count from now: time without access is not billed. */
    resume(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Subscription>
    /** Cancels a subscription, immediately or at the end of its period. `period_end` can be undone until then with `resume`. A canceled subscription can't be resumed. */
    cancel(id: string, body: Body<"cancelSubscription">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Subscription>
  }
  invoices: {
    /** All invoices, newest first */
    list(query?: Query<"listInvoices">, options?: RequestOptions): Pages<Item<"listInvoices", "data">, api.InvoiceList>
    /** All invoices that match the filter, as CSV */
    export(query?: Query<"exportInvoices">, options?: RequestOptions): Promise<string>
    /** One invoice */
    get(id: string, options?: RequestOptions): Promise<api.Invoice>
  }
  transactions: {
    /** Incoming and outgoing money, newest first */
    list(query?: Query<"listTransactions">, options?: RequestOptions): Pages<Item<"listTransactions", "data">, api.TransactionList>
    /** All transactions that match the filter, as CSV */
    export(query?: Query<"exportTransactions">, options?: RequestOptions): Promise<string>
    /** How much the transactions that match the filter add up to. One sum for each type, state and token. A payment is in it whole, even if only its surplus is open. If more than 10000 transactions match, there are no sums: use a narrower filter, or export the transactions as CSV. */
    totals(query?: Query<"sumTransactions">, options?: RequestOptions): Promise<At<api.TransactionTotals, "data">>
  }
  payments: {
    /** Payments that need a decision or got one, newest first. Payments that were too small, too large, late, duplicate, in another token or from a sender on a sanctions list. An `open` payment waits for you to accept or return it, and so does the `surplus` of a granted payment. */
    list(query?: Query<"listExceptionalPayments">, options?: RequestOptions): Pages<Item<"listExceptionalPayments", "data">, api.PaymentList>
    /** Accepts an open payment, so that it counts as paid. Grants access or confirms the checkout, with the usual events. If the checkout is already confirmed, you get the money in addition, and no event is sent twice. The money is divided or swept like any other, in its own token. The surplus of a granted payment buys nothing more; it is divided or swept like the rest. */
    accept(id: string, body?: Body<"acceptPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Payment>
    /** Sends an open payment back, once. Sends the whole payment, or only the surplus of a granted payment, to `address` in its own token. Without `address`, the money goes to the address that the payer named with a signature (`returnAddress`). It never goes to the sender by default, because the sender may be an exchange. To use an address other than the one the payer named, set `confirm: true`. If the receiving address has a wallet as `approver`, the return needs that wallet's signature: the first request gets `RETURN_APPROVAL_REQUIRED` with the data to sign. */
    return(id: string, body: Body<"returnPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Payment>
    /** Sends up to 50 open payments back, each independently. Each payment is returned or refused independently. Send the whole list without `approval` first, sign what the answer asks for, and send it again with another `Idempotency-Key`. A payment that was already returned is refused, so nothing is sent twice. */
    returnMany(body: Body<"returnPayments">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.PaymentsReturned, "data">>
    /** Captures all or part of the reserved money. The amount goes to your payout address. The checkout's `escrow.captured` includes it once its transaction is confirmed, and the first capture confirms the checkout. Captures add up. Money not captured before `escrow.captureBefore` goes back to the payer. */
    capture(body: Body<"capturePayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Capture>
    /** Releases the rest of the reserved money to its payer */
    void(body: Body<"voidPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Void>
    /** The shares of a payment, in the order of its split; empty without a split */
    listShares(id: string, options?: RequestOptions): Promise<At<api.ShareList, "data">>
    /** A payment with its transfers, address, payouts, events and timeline. Accepts any id that `GET /api/console/timeline/:id` accepts, such as a checkout's id for all its payments. */
    get(id: string, options?: RequestOptions): Promise<api.PaymentStory>
  }
  refunds: {
    /** Refunds a captured escrow payment, in full or in part. The money comes from the payout wallet that got the payment. This wallet must sign `approval.call`, one allowance for all its open refunds. The refund then continues, and `payment.refunded` is sent when it is mined. Open refunds reduce the refundable rest. Only one refund per wallet is in progress at a time. */
    create(body: Body<"refundPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Refund>
    /** All refunds, newest first */
    list(query?: Query<"listRefunds">, options?: RequestOptions): Pages<Item<"listRefunds", "data">, api.RefundList>
    /** One refund */
    get(id: string, options?: RequestOptions): Promise<api.Refund>
    /** Withdraws a refund that is not signed yet. The refund becomes `failed` and keeps its id; its amount can be refunded again. A refund that waits for your wallet's approval can always be withdrawn. An allowance that the wallet already gave stays: revoke it in the wallet. */
    withdraw(id: string, options?: RequestOptions): Promise<api.Refund>
  }
  webhooks: {
    /** Registers an endpoint, and shows its secret only once. The service first sends a signed `ping` to the address. Any answer is accepted except a redirect, 404, 410, 502, 503 and 504: a receiver may refuse a `ping` because it does not have the secret yet. `X-Webhook-Notice` says when the address can be reached only because of WEBHOOK_ALLOW_CIDRS. */
    create(body: Body<"createWebhook">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.WebhookCreated, "data">>
    /** All endpoints, including paused endpoints */
    list(query?: Query<"listWebhooks">, options?: RequestOptions): Pages<Item<"listWebhooks", "data.webhooks">, api.WebhookList>
    /** One endpoint with every field except its secret */
    get(id: string, options?: RequestOptions): Promise<At<api.WebhookAnswer, "data">>
    /** Changes the given fields; pauses and resumes the endpoint. A new `url` is first tried, as at registration. Events emitted while the endpoint is paused can be sent later. If the endpoint is moved or paused, or its events change, `settings.webhook_changed` notifies every endpoint, and this one at its old `url`. */
    update(id: string, body: Body<"changeWebhook">, options?: RequestOptions): Promise<At<api.WebhookAnswer, "data">>
    /** Removes an endpoint, and notifies it with `settings.webhook_changed`. Nothing else is sent to it afterwards, except deliveries that a process had already picked up within the last second. Its deliveries can still be read. */
    delete(id: string, options?: RequestOptions): Promise<At<api.WebhookDeleted, "data">>
    /** Sends a `ping`, or the example of another event, the same way as any event. An example is marked: its body has `test: true` next to `event`, and its ids belong to nothing. A receiver must not act on it. A paused endpoint gets it too. Read the delivery for the result. */
    test(id: string, body?: Body<"testWebhook">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.DeliveryAnswer, "data">>
    /** Creates a new secret and shows it only once. For 24 hours both secrets sign: `Service-Signature` has a `v1` for each, newest first. `settings.webhook_changed` notifies every endpoint. */
    rollSecret(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.WebhookSecretRolled, "data">>
    /** Resends every delivery that failed or was skipped since a given time */
    recover(id: string, body: Body<"recoverWebhook">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.Recovered, "data">>
    /** The deliveries to one endpoint, sent and pending */
    listDeliveries(id: string, query?: Query<"listDeliveries">, options?: RequestOptions): Pages<Item<"listDeliveries", "data">, api.DeliveryList>
    /** How many deliveries to an endpoint arrived, and how long its answers took. A delivery, with all its attempts, counts in the period in which it was created. */
    stats(id: string, query?: Query<"readWebhookStats">, options?: RequestOptions): Promise<At<api.WebhookStats, "data">>
  }
  deliveries: {
    /** The deliveries to every endpoint and `callbackUrl`, sent and pending. Filters combine: a delivery must match all of them. Resend one with `POST /api/console/deliveries/:id/resend`. */
    list(query?: Query<"listAllDeliveries">, options?: RequestOptions): Pages<Item<"listAllDeliveries", "data">, api.DeliveryList>
    /** One delivery with every attempt */
    get(id: string, options?: RequestOptions): Promise<At<api.DeliveryWithAttemptsAnswer, "data">>
    /** Resends a delivery now. Works in every state. It replaces a planned retry and restarts the count of attempts. A paused endpoint gets it once. */
    resend(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.DeliveryAnswer, "data">>
  }
  events: {
    /** Every event: when and to whom it is sent, the JSON Schema of its body, and an example */
    listTypes(options?: RequestOptions): Promise<At<api.EventTypeList, "data">>
    /** Events, exactly as they are sent */
    list(query?: Query<"listEvents">, options?: RequestOptions): Pages<Item<"listEvents", "data">, api.EventList>
    /** One event, exactly as it is sent. `GET /api/console/deliveries?eventId=` lists where it was sent. */
    get(id: string, options?: RequestOptions): Promise<At<api.EventAnswer, "data">>
  }
  listeners: {
    /** Creates an endpoint without a URL, and shows its secret only once. Its deliveries are pulled instead of sent, so they reach a machine that accepts no connections. They are like other deliveries, with the same retries, and can be resent. `settings.webhook_changed` notifies every endpoint. A merchant can have three listeners. A listener ends automatically if nobody pulls from it for ten minutes. In live mode the merchant's setting `liveListeners` must allow listeners. */
    create(body: Body<"createListener">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.ListenerCreated>
    /** The listeners that have not ended */
    list(query?: Query<"listListeners">, options?: RequestOptions): Pages<Item<"listListeners", "data">, api.ListenerList>
    /** Ends a listener; its pending deliveries are skipped */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Pulls the deliveries that are due, as a stream or a long poll. If you accept `text/event-stream` and send no `wait`, the answer is a stream of server-sent events. Each `delivery` event has the JSON of one delivery in `data`; `over` says that the listener has ended. At most ten deliveries can lack a result at a time; report each with `POST …/results`. A delivery without a result is sent again, with the same `deliveryId`, when its lease ends 30 seconds after WEBHOOK_TIMEOUT. Several callers can pull one listener: they share its deliveries, and no two get the same delivery. */
    pull(id: string, query?: Query<"pullDeliveries">, options?: RequestOptions): Promise<At<api.PulledDeliveryList, "data">>
    /** Reports what receivers answered to pulled deliveries. A status from 200 to 299 without an `error` marks the delivery as delivered. After any other result it is retried like a delivery to a URL. The delivery's log shows the report. A repeated report changes nothing. */
    report(id: string, body?: Body<"reportResults">, options?: RequestOptions): Promise<api.ResultsRecorded>
  }
  splits: {
    /** Creates a split: 2 to 50 recipients whose percentages total exactly 100 */
    create(body: Body<"createSplit">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Split>
    /** All splits, newest first */
    list(query?: Query<"listSplits">, options?: RequestOptions): Pages<Item<"listSplits", "data">, api.SplitList>
    /** One split with every field */
    get(id: string, options?: RequestOptions): Promise<api.Split>
    /** Changes the given fields; a list of recipients replaces the whole list. Applies to new receiving addresses. Each address fixes its recipients, so every paywall with this split gets a new address. Money that was paid before, or that reaches an old address within the hour, goes to the recipients of that address. Later money waits for you as an exception (`late`), and goes to them if you accept it. Checkouts keep their addresses. */
    update(id: string, body: Body<"changeSplit">, options?: RequestOptions): Promise<api.SplitChanged>
    /** Deletes a split permanently; payments already made keep its recipients */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  books: {
    /** Every transfer into and out of the receiving addresses, with its reason, newest first */
    list(query?: Query<"listBooks">, options?: RequestOptions): Pages<Item<"listBooks", "data">, api.BookEntryList>
    /** All entries of the books that match the filter, as CSV */
    export(query?: Query<"exportBooks">, options?: RequestOptions): Promise<string>
  }
  reports: {
    /** Every transfer with its reason and value, as CSV. The books of the period, newest first. */
    books(query?: Query<"reportBooks">, options?: RequestOptions): Promise<string>
    /** Every payout with the payments inside it, as CSV. One line for each payment in each payout that was mined in the period: sweeps and captures to you, and shares to the recipients of your splits. The lines of a payout add up exactly to its amount. `valueReceived` uses the rate at the payment's time, `valuePaid` the rate at the payout's time. */
    payouts(query?: Query<"reportPayouts">, options?: RequestOptions): Promise<string>
    /** Opening and closing balance, and what came in and went out, by network and token, as CSV. For each network and token: what your receiving addresses and escrows held at the start and the end of the period, and what came in and went out in between, by reason. */
    balance(query?: Query<"reportBalance">, options?: RequestOptions): Promise<string>
    /** What was received and given back by month, with its value, as CSV. For each month of the time zone `tz`, network and token: what was received for payments, what was returned and refunded to payers, and the difference. Each transfer is valued at the rate at its time, and the values are added up. `unvalued` counts transfers without a known rate; they are in the amounts but not in the values. */
    tax(query?: Query<"reportTax">, options?: RequestOptions): Promise<string>
  }
  receipts: {
    /** Receipts of payments, refunds, captures, releases and reversals, newest first. The list contains no keys, so nobody can read a receipt with it. The file contains them. */
    list(query?: Query<"listReceipts">, options?: RequestOptions): Pages<Item<"listReceipts", "data">, api.ReceiptEntryList>
    /** Receipts with their keys, in order, as a file that proves itself. One line of JSON for each receipt, and a last line with the number of receipts. `npx @sluice/verify FILE` proves that no receipt is changed or left out. Keep the file as safe as your books: anyone who has it can read these receipts. */
    export(query?: Query<"exportReceipts">, options?: RequestOptions): Promise<Answer<"exportReceipts">>
  }
  erasures: {
    /** Erases the personal data of one customer. Name the customer by exactly one of `customerEmail`, `payer` and `checkoutId`. In their checkouts, subscriptions and refunds, this erases e-mail addresses, what payers entered, metadata, descriptions, page addresses and reasons. It also erases the data of events and the answers to deliveries. Try it with `dryRun` first. It can't be undone. */
    create(body: Body<"eraseCustomer">, options?: RequestOptions): Promise<api.ErasureResult>
    /** Erasures of customers' data, newest first, without the customers' names */
    list(query?: Query<"listErasures">, options?: RequestOptions): Pages<Item<"listErasures", "data">, api.ErasureList>
  }
  overview: {
    /** Figures by period, the figures of the time before, and what needs you. A figure has the time of its entry in the books: the block of a transfer, or when a payout was first seen in a block. A refund or a reversed payment therefore subtracts in the period in which it happens, and the payment's own period stays unchanged. The books of the same time have the same sums, except for reversed payments: the books leave them out, while here they are in both `received` and `reversed`. Nothing is added across tokens or networks. */
    get(query?: Query<"readOverview">, options?: RequestOptions): Promise<api.Overview>
    /** Balances at your receiving addresses and in the escrow, according to the books, by network and token */
    getBalances(options?: RequestOptions): Promise<At<api.Balances, "data">>
  }
  deposits: {
    /** The receiving addresses and their terms, newest first */
    list(query?: Query<"listDeposits">, options?: RequestOptions): Pages<Item<"listDeposits", "data">, api.DepositList>
    /** All receiving addresses and their terms, as CSV: everything needed to recover their money without the service */
    export(query?: Query<"exportDeposits">, options?: RequestOptions): Promise<string>
    /** The terms that a receiving address commits to: who can ever get its money. `keccak256(abi.encode(salt, owner, approver, payeesHash, openAfter))` is the CREATE2 salt of a plain ERC-1167 clone, so the address can be computed from the answer. `sluice verify-address` does so offline. */
    terms(address: string, options?: RequestOptions): Promise<api.DepositTerms>
  }
  foreignTokens: {
    /** Tokens at your receiving addresses that you do not accept, newest first. Tokens sent to a receiving address by mistake. The service finds them in final blocks without a submitted hash, while it watches the address, usually after half an hour. Nothing here counts as a payment. Tokens whose contract reports a zero balance are left out, and at most 20 are listed per address. Ether leaves no log, so it is never listed; it can be recovered at any time. */
    list(query?: Query<"listForeignTokens">, options?: RequestOptions): Pages<Item<"listForeignTokens", "data">, api.ForeignTokenList>
  }
  bundles: {
    /** Puts an API behind a price, route by route */
    create(body: Body<"createBundle">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Bundle>
    /** All bundles, including inactive ones */
    list(query?: Query<"listBundles">, options?: RequestOptions): Pages<Item<"listBundles", "data">, api.BundleList>
    /** One bundle with its routes, and only the names of its secret headers */
    get(id: string, options?: RequestOptions): Promise<api.Bundle>
    /** Changes the given fields; calls in progress keep the old ones */
    update(id: string, body: Body<"changeBundle">, options?: RequestOptions): Promise<api.Bundle>
    /** Deactivates a bundle; has no effect on an inactive bundle */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Paid calls that the origin failed, latest first */
    listFailures(id: string, query?: Query<"listBundleFailures">, options?: RequestOptions): Pages<Item<"listBundleFailures", "data">, api.BundleFailureList>
  }
  agents: {
    /** Buys what a slug names, a paywall's content or a payment link, or describes a bundle of calls. Without a payment it answers 402 and says what to pay, in versions 1 and 2 of x402. With a payment in `PAYMENT-SIGNATURE` (or `X-PAYMENT`) it settles the payment and answers once. The answer has the result in `PAYMENT-RESPONSE` (or `X-PAYMENT-RESPONSE`), and a `Sluice-Retry-Token` that repeats the answer for a day without another payment. */
    buyBySlug(slug: string, query?: Query<"buyBySlug">, options?: RequestOptions): Promise<api.SlugAnswer>
    /** Buys a paywall's content. Without a payment it answers 402 and says what to pay, in versions 1 and 2 of x402. With a payment in `PAYMENT-SIGNATURE` (or `X-PAYMENT`) it settles the payment and answers once. The answer has the result in `PAYMENT-RESPONSE` (or `X-PAYMENT-RESPONSE`), and a `Sluice-Retry-Token` that repeats the answer for a day without another payment. */
    buyPaywall(id: string, body?: Body<"buyPaywall">, options?: RequestOptions): Promise<api.AgentPurchase>
    /** The state of an agent's payment. For the `statusUrl` of a 202. When the payment is settled, repeat the request with its `Sluice-Retry-Token`. */
    getPayment(id: string, options?: RequestOptions): Promise<api.AgentPayment>
    /** What this installation sells to agents, as far as its merchants listed it */
    discover(options?: RequestOptions): Promise<api.Offers>
  }
  facilitator: {
    /** The versions, schemes and networks that the facilitator settles */
    supported(options?: RequestOptions): Promise<api.X402Supported>
    /** Whether a buyer's payment can be settled; writes nothing */
    verify(body: Body<"verifyX402Payment">, options?: RequestOptions): Promise<api.X402Verified>
    /** Settles a buyer's payment, once. Answers `success: true` once for a payment, when its transfer is in a block. A repeated payment gets `duplicate_settlement` with its `transaction`, or the first answer if you send the `Idempotency-Key` of the first call. If settling takes longer than `maxTimeoutSeconds`, the answer is `settlement_pending`, and settling continues. */
    settle(body: Body<"settleX402Payment">, options?: RequestOptions): Promise<api.X402Settled>
    /** The state of a settlement that one of the merchant's servers requested */
    getSettlement(from: string, nonce: string, options?: RequestOptions): Promise<api.X402Settlement>
  }
  subscriber: {
    /** Issues the nonce for one sign-in, valid for ten minutes, and the message to sign */
    createNonce(body: Body<"createSubscriberNonce">, options?: RequestOptions): Promise<api.SignInMessage>
    /** Signs a wallet in to see and cancel its subscriptions, for a quarter of an hour. The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/subscriptions/token`, a network of this service, the nonce, and the single resource `urn:sluice:subscriptions`. A wallet with a key sees its subscriptions on every network. A contract wallet (ERC-1271) sees only those on the network that the message names, because a contract at one address can have a different owner on each network. */
    signIn(body: Body<"signInSubscriber">, options?: RequestOptions): Promise<api.SubscriberSignIn>
    /** The wallet's subscriptions, with the invoice that can be paid. A subscription belongs to the wallet that paid first, whoever pays later. */
    listSubscriptions(query?: Query<"listOwnSubscriptions">, options?: RequestOptions): Pages<Item<"listOwnSubscriptions", "data">, api.OwnSubscriptionList>
    /** The invoices of one of the wallet's subscriptions, with their receipts */
    listInvoices(id: string, query?: Query<"listOwnInvoices">, options?: RequestOptions): Pages<Item<"listOwnInvoices", "data">, api.OwnInvoiceList>
    /** Cancels a subscription at the end of the paid period. Until then `resume` can undo it. An open invoice is closed, unless its payment is in progress. If the paid period has ended, the cancellation takes effect immediately. */
    cancel(id: string, body?: Body<"cancelOwnSubscription">, options?: RequestOptions): Promise<api.OwnSubscription>
    /** Keeps a subscription that would end with the paid period. If the merchant paused a subscription, only the merchant can resume it. */
    resume(id: string, body?: Body<"resumeOwnSubscription">, options?: RequestOptions): Promise<api.OwnSubscription>
  }
  audit: {
    /** Who changed what, when and from where, newest first. Each change to your configuration and each decision about money is recorded, in the same transaction. A refused request is not recorded. Entries are kept forever and never changed, except to erase a customer's data. They include the IP addresses of requests. An API key with the scope `console` can read them too. */
    list(query?: Query<"listAuditEntries">, options?: RequestOptions): Pages<Item<"listAuditEntries", "data">, api.AuditEntryList>
    /** All entries that match the filter, as CSV. `before` and `after` are JSON. If a spreadsheet would run a text as a formula, the text starts with an apostrophe. */
    export(query?: Query<"exportAuditEntries">, options?: RequestOptions): Promise<string>
  }
  requests: {
    /** The requests of your people and API keys in the last 30 days, newest first. An entry is written within a second after the answer. It has no request body, and only the pattern of the path. A call to an assistant's tool appears as `/mcp/` with the tool's name, in addition to the requests that the tool makes. Requests of payers and strangers are not logged. Under load, entries can be dropped (and are counted), so a missing entry does not prove that no request was made. The audit log contains every change. */
    list(query?: Query<"listRequests">, options?: RequestOptions): Pages<Item<"listRequests", "data">, api.LoggedRequestList>
    /** The requests with an `X-Request-Id`. This is a list, because callers can choose the id and reuse it. */
    find(id: string, options?: RequestOptions): Promise<At<api.LoggedRequestsFound, "data">>
  }
  timeline: {
    /** What happened to any object, why it is in its state, and what you can do now */
    get(id: string, options?: RequestOptions): Promise<api.Timeline>
  }
  payouts: {
    /** Money sent to your wallet, to recipients of splits and back to payers, newest first */
    list(query?: Query<"listPayouts">, options?: RequestOptions): Pages<Item<"listPayouts", "data">, api.PayoutList>
    /** All payouts that match the filter, as CSV */
    export(query?: Query<"exportPayouts">, options?: RequestOptions): Promise<string>
    /** One payout with its gas, its attempts and the reason for its state */
    get(id: string, options?: RequestOptions): Promise<api.PayoutStory>
    /** The payments in a payout, and how much of each. For a sweep, each transfer that it took a part of, newest first. For a share, return or capture, its one payment. The parts add up exactly to the payout, even after a reorg removes a payment. */
    listPayments(id: string, query?: Query<"listPayoutPayments">, options?: RequestOptions): Pages<Item<"listPayoutPayments", "data">, api.PayoutPartList>
  }
  search: {
    /** Finds anything by its id, hash, address, e-mail address, slug, name, amount or metadata. Texts are compared as a whole, ignoring case; for a name, its start is enough. Metadata is found by top-level texts, numbers and booleans, in up to 50 fields of a checkout. */
    find(query: Query<"search">, options?: RequestOptions): Promise<At<api.Matches, "data">>
  }
  payers: {
    /** Payers and what they paid; latest payers first */
    list(query?: Query<"listPayers">, options?: RequestOptions): Pages<Item<"listPayers", "data">, api.PayerList>
    /** A payer by address or e-mail address: paid, refunded, subscriptions and access */
    get(payer: string, options?: RequestOptions): Promise<api.PayerWhole>
  }
  health: {
    /** The state of each network, what is waiting, and what is wrong, as text. Problems that only the operator can see and fix, such as a network endpoint that lies, are in `/readyz` and the metrics. */
    get(options?: RequestOptions): Promise<api.ServiceHealth>
  }
  changes: {
    /** Changes in your lists, in the order of commits. Request once without `after` to get the current position, read your lists, then poll with `after`. Changes are kept for 24 hours. Each change arrives at least once. `GET /api/console/stream` sends the same changes as server-sent events. */
    list(query?: Query<"listChanges">, options?: RequestOptions): Pages<Item<"listChanges", "undefined">, api.ChangeList>
  }
}

/** The codes of the service's errors: `docs/developers/errors.md` explains each. */
export type ErrorCode =
  | "VALIDATION_ERROR"
  | "MERCHANT_REQUIRED"
  | "authorization_pending"
  | "slow_down"
  | "access_denied"
  | "expired_token"
  | "INVALID_TX_HASH"
  | "INVALID_SPLIT"
  | "UNAUTHORIZED"
  | "SIGNATURE_REFUSED"
  | "ACCESS_REQUIRED"
  | "FORBIDDEN"
  | "FOREIGN_REQUEST"
  | "SCOPE_REQUIRED"
  | "IP_NOT_ALLOWED"
  | "ROLE_REQUIRED"
  | "ERASED"
  | "ERASURE_REFUSED"
  | "INVITATION_REFUSED"
  | "WALLET_SIGNATURE_REQUIRED"
  | "RETURN_APPROVAL_REQUIRED"
  | "DAILY_LIMIT_REACHED"
  | "SANCTIONS_MATCH"
  | "SIGNUP_CLOSED"
  | "NOT_FOUND"
  | "PAYWALL_NOT_FOUND"
  | "DEPOSIT_NOT_FOUND"
  | "PAYMENT_NOT_FOUND"
  | "RECEIPT_NOT_HERE"
  | "SESSION_NOT_FOUND"
  | "LINK_NOT_FOUND"
  | "ALREADY_VERIFIED"
  | "PAYOUT_ADDRESS_REQUIRED"
  | "SESSION_ALREADY_CONFIRMED"
  | "TXHASH_ALREADY_USED"
  | "AUTHORIZATION_ALREADY_USED"
  | "PAYMENT_ALREADY_SERVED"
  | "PAYMENT_IDENTIFIER_USED"
  | "INVALID_OPERATION"
  | "SLUG_TAKEN"
  | "IDEMPOTENCY_IN_PROGRESS"
  | "SESSION_EXPIRED"
  | "LINK_UNAVAILABLE"
  | "PAYLOAD_TOO_LARGE"
  | "UNSUPPORTED_MEDIA_TYPE"
  | "URL_UNREACHABLE"
  | "AUTHORIZATION_REFUSED"
  | "IDEMPOTENCY_MISMATCH"
  | "RATE_LIMITED"
  | "INTERNAL_ERROR"
  | "IDENTITY_UNAVAILABLE"
  | "CHAIN_UNAVAILABLE"
  | "RELAY_UNAVAILABLE"
  | "ORIGIN_FAILED"
  | "ORIGIN_BUSY"
  | "PAYMENTS_PAUSED"
  | "DATABASE_UNAVAILABLE"
  | "NOT_READY"

/** The events that the service sends, by name. */
export const eventNames = [
  "checkout.session.completed",
  "payment.refunded",
  "subscription.renewal.created",
  "payment.exception",
  "subscription.past_due",
  "subscription.canceled",
  "subscription.resumed",
  "checkout.confirmed",
  "checkout.failed",
  "checkout.expired",
  "checkout.authorized",
  "checkout.voided",
  "checkout.session.reversed",
  "paywall.granted",
  "paywall.reversed",
  "settings.payout_address_changed",
  "settings.split_changed",
  "settings.webhook_changed",
  "ping",
] as const
