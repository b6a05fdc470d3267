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
    /** Issues the nonce of one sign-in, valid for ten minutes, and the message to sign */
    nonce(body?: Body<"createSignInNonce">, options?: RequestOptions): Promise<api.SignInMessage>
    /** Signs a wallet in, for an hour. The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/auth/verify`, a network of this service, the nonce, and the single resource `urn:sluice:sign-in`. Contract wallets can sign too (ERC-1271), also before they are deployed (ERC-6492). A person is identified by wallet and network. This makes no merchant: the first request to the console does, or `POST /api/console/merchants`. */
    verify(body: Body<"signIn">, options?: RequestOptions): Promise<api.SignIn>
  }
  console: {
    /** What a console has to know before anyone is signed in */
    config(options?: RequestOptions): Promise<api.ConsoleConfig>
  }
  sessions: {
    /** Signs a browser in to the console, by a wallet's signature. For the console's own page (`Origin` is that of `CONSOLE_URL`). The message is that of `POST /api/auth/nonce`, as for `POST /api/auth/verify`; where the console has a host of its own, the message names that host. Sets the session's cookie, and ends the session that the browser had. Signing in makes no merchant. */
    begin(body: Body<"beginSession">, options?: RequestOptions): Promise<api.SessionBegun>
    /** Signs this browser out. Ends the session of the cookie, and removes the cookie. Without one it does nothing. */
    end(options?: RequestOptions): Promise<api.SignedOut>
    /** The browsers in which you are signed in, newest first */
    list(options?: RequestOptions): Promise<At<api.SessionList, "data">>
    /** Signs one of your browsers out, at once */
    revoke(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  devices: {
    /** Begins the sign-in of a program that has no browser. Show the person `user_code` and `verification_uri`, and ask with `POST /api/device/token` every `interval` seconds. The person opens the page, signs in, types the code, sees the machine's name, its IP address and the scopes, and approves or denies. There is no address that contains the code: a person who types it has it from the own machine. */
    begin(body: Body<"beginDeviceSignIn">, options?: RequestOptions): Promise<api.DeviceBegun>
    /** Asks for the key of a program that signs in, which is answered once. Until the person has decided, it is answered 400 `authorization_pending`. The key is named `CLI, HOST, PERSON`, lasts 90 days, and ends at once when the person leaves the merchant or gets a role that may not give its scopes. It can be renamed and revoked, but not changed or rolled. */
    ask(body: Body<"askForDeviceKey">, options?: RequestOptions): Promise<api.DeviceKey>
  }
  settings: {
    /** The merchant's settings */
    get(options?: RequestOptions): Promise<api.Settings>
    /** Changes the given settings. In live mode a new payout address takes effect after 24 hours, and is shown until then. While the wallet lock is on, the change needs the payout wallet's signature: that of the payout address which has been in effect longest. Signed by the very address that it replaces, it takes effect at once. Switching the lock on needs the signature of every payout address, also of one on a network that is not served now. A new payout address or `approver` gives every paywall a new receiving address: what reaches the old one more than an hour later is an exception. */
    update(body: Body<"changeSettings">, options?: RequestOptions): Promise<api.Settings>
    /** Creates a new secret for callback URLs and shows it only this once. It signs what is sent to the `callbackUrl` of a session. For 24 hours the previous secret signs too. `settings.webhook_changed` notifies every endpoint. */
    rollWebhookSecret(options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.AccountSecretRolled, "data">>
    /** Shows the secret for callback URLs, once. Every account starts with a secret, which can be read here once. After that, and after a roll (whose answer shows the new secret), the answer is 409. */
    revealWebhookSecret(options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.AccountSecret, "data">>
  }
  apiKeys: {
    /** Creates an API key, and shows it only this once. A member gives only scopes that open what the member's own role may do: `console`, which opens splits too, is an owner's to give. A key with `catalog` can't set `splitId` or `originUrl`. */
    create(body: Body<"createApiKey">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.ApiKeyCreated>
    /** The API keys, without the secrets */
    list(query?: Query<"listApiKeys">, options?: RequestOptions): Pages<Item<"listApiKeys", "data">, api.ApiKeyList>
    /** Changes the given fields of a key, from its next request on. Null takes an end, addresses or a limit away. Whoever changes more than the name must have the rights of all scopes that the key then has. With the wallet lock on, a key that then has `money` or `console` needs the payout wallet's signature. */
    update(id: string, body: Body<"changeApiKey">, options?: RequestOptions): Promise<api.ApiKeyChanged>
    /** Revokes an API key at once */
    revoke(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Gives a key a new secret, and shows it only this once. The key keeps its id, so its limits and its entries in the audit log go on. For `graceSeconds` the secret before works too, until `previousExpiresAt`. Whoever rolls a key must have the rights of all its scopes. With the wallet lock on, a key with `money` or `console` needs the payout wallet's signature. */
    roll(id: string, body: Body<"rollApiKey">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.ApiKeyCreated>
    /** Lets a key go on whose maker may no longer give it. Such a key has `ending`: why and when it ends. Whoever adopts it must have the rights of all its scopes, and is its maker from then on. The maker before may still know its secret, so roll it too. With the wallet lock on, a key with `money` or `console` needs the payout wallet's signature. */
    adopt(id: string, body?: Body<"adoptApiKey">, options?: RequestOptions): Promise<api.ApiKeyChanged>
    /** How much all API keys together may send back in a day */
    getLimits(options?: RequestOptions): Promise<api.KeyLimits>
    /** Changes the given limits, from the next refund or return of a key on. Each key may have limits of its own, too. What persons refund and return does not count. With the wallet lock on, a higher limit, or none, needs the payout wallet's signature. */
    updateLimits(body: Body<"changeKeyLimits">, options?: RequestOptions): Promise<api.KeyLimits>
  }
  me: {
    /** Who is signed in, and the merchants of which this person is a member */
    get(options?: RequestOptions): Promise<api.Me>
  }
  merchants: {
    /** Makes a merchant, whose owner is who makes it. Where sign-up is by invitation, each invited person can make one. The first request to the console with a bearer token of a person who was never a member of a merchant makes one too. */
    create(body: Body<"createMerchant">, options?: RequestOptions): Promise<api.Membership>
  }
  team: {
    /** Makes the person who is signed in a member, by the token of an invitation. The invitation counts only for whom it names: the person whose identity provider has verified the e-mail address (`email_verified`), or the wallet. It counts once, for seven days, and while its maker may still invite. */
    accept(body: Body<"acceptInvitation">, options?: RequestOptions): Promise<api.Membership>
    /** The members of the merchant and their roles */
    list(query?: Query<"listMembers">, options?: RequestOptions): Pages<Item<"listMembers", "data">, api.TeamMemberList>
    /** Changes a member's role, from the member's next request on. The last owner can't be lowered. A member with the role support accepts, returns, refunds, captures and voids up to `moneyPerDay`, and nothing while it is 0. API keys that the member could not give any more end in seven days, unless another member adopts them; keys of devices end at once. While the wallet lock is on, a raise to owner, admin or finance, or of `moneyPerDay`, needs the payout wallet's signature. */
    update(id: string, body: Body<"changeMember">, options?: RequestOptions): Promise<api.TeamMember>
    /** Removes a member, from the member's next request on; each member may leave. The last owner can neither leave nor be removed. The member's API keys end in seven days, unless another member adopts them; keys of devices end at once. */
    remove(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Invites a person by e-mail address or wallet, and shows the token only this once. It counts once, for seven days, for the person whose identity provider has verified the address, or for the wallet. While the wallet lock is on, an invitation as owner, admin or finance needs the payout wallet's signature. */
    invite(body: Body<"inviteMember">, options?: RequestOptions): Promise<api.TeamInvitationCreated>
    /** The invitations that can still be accepted, without the tokens */
    listInvitations(query?: Query<"listInvitations">, options?: RequestOptions): Pages<Item<"listInvitations", "data">, api.TeamInvitationList>
    /** Revokes an invitation at once */
    revokeInvitation(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  notifications: {
    /** What you are notified of by mail, at this merchant */
    get(options?: RequestOptions): Promise<At<api.Notifications, "data">>
    /** Switches notices by mail on and off, for you alone. Notices of changed payout addresses, approvers, wallet locks, contact addresses and owners can't be switched off, nor those of your own sign-ins and memberships. At most 20 mails an hour are sent to you; what is beyond comes as one digest. */
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
    /** Deactivates a paywall; access already granted stays */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** The access that a paywall has granted */
    listGrants(id: string, query?: Query<"listGrants">, options?: RequestOptions): Pages<Item<"listGrants", "data">, api.GrantList>
    /** Revokes a grant: exactly the time it added is taken away */
    revokeGrant(id: string, grantId: string, body?: Body<"revokeGrant">, options?: RequestOptions): Promise<api.Deleted>
    /** What a buyer needs in order to pay */
    show(id: string, options?: RequestOptions): Promise<api.PaywallOffer>
    /** Whether an address has access now. Reports what an address has paid for, not who sends the request. Where the paywall has a `subscriptionProductId`, a subscription of that product opens it until its grace is over, and `txHash` is its last payment. A request with an API key counts against the key's rate limit. */
    verifyAccess(id: string, query: Query<"verifyAccess">, options?: RequestOptions): Promise<api.PaywallAccess>
    /** Starts a checkout of the subscription that opens a paywall. For a paywall with a `subscriptionProductId`. The checkout is the first period of a subscription that belongs to the wallet that pays it, and leads back to the paywall's page. */
    subscribe(id: string, body?: Body<"subscribeToPaywall">, options?: RequestOptions): Promise<api.PaywallPurchase>
    /** Submits the transaction hash of a payment. A hint that finds the payment sooner. Submitting it again while it is verified is a no-op. */
    pay(id: string, body: Body<"submitPayment">, options?: RequestOptions): Promise<api.PaymentSubmitted>
    /** The status of a submitted payment. With `wait`, the answer comes as soon as the payment is no longer `verifying`, and at once where too many requests wait; the request counts once against the rate limit. */
    getPayment(id: string, txHash: string, query: Query<"readPayment">, options?: RequestOptions): Promise<api.PaywallPayment>
    /** Issues the nonce of one proof, valid for ten minutes, and the message to sign */
    createAccessNonce(id: string, body?: Body<"createAccessNonce">, options?: RequestOptions): Promise<api.SignInMessage>
    /** Issues an access token to whoever proves to own an address that has access. The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/paywalls/<id>/access`, the paywall's network, the nonce, and the single resource `urn:sluice:paywall:<id>`. The token is valid for at most five minutes, and never longer than the access. It does not use up a call of a `per_call` grant; `consume` does. */
    proveAccess(id: string, body: Body<"proveAccess">, options?: RequestOptions): Promise<api.Access>
    /** Uses up one call that an address paid for. For a `per_call` paywall, each payment is one call. For others, calls are not counted: all are allowed while the access lasts, and `remaining` is null. Access by a subscription has no number of calls, and uses up none that were paid for. */
    consume(id: string, body: Body<"consumeCall">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.CallConsumed>
  }
  checkouts: {
    /** Starts a checkout with its own receiving address */
    create(body: Body<"createCheckout">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Checkout>
    /** All checkouts, newest first. Without unpaid checkouts that ended more than 30 days ago. These are read by their id, as before, and are listed again for a day after that. */
    list(query?: Query<"listCheckouts">, options?: RequestOptions): Pages<Item<"listCheckouts", "data">, api.CheckoutList>
    /** One checkout with every field */
    get(id: string, options?: RequestOptions): Promise<api.Checkout>
    /** Changes the given fields; the payer still pays what was asked before */
    update(id: string, body: Body<"changeCheckout">, options?: RequestOptions): Promise<api.Checkout>
    /** Ends a checkout that nobody has started to pay. It expires now. Money that arrives afterwards counts as late, and is still found. */
    close(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  consoleCheckouts: {
    /** Starts a checkout with its own receiving address */
    create(body: Body<"createCheckoutInConsole">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Checkout>
    /** All checkouts, newest first. Without unpaid checkouts that ended more than 30 days ago. These are read by their id, as before, and are listed again for a day after that. */
    list(query?: Query<"listCheckoutsInConsole">, options?: RequestOptions): Pages<Item<"listCheckoutsInConsole", "data">, api.CheckoutList>
    /** One checkout with every field */
    get(id: string, options?: RequestOptions): Promise<api.Checkout>
    /** All checkouts that match the filter, as CSV */
    export(query?: Query<"exportCheckouts">, options?: RequestOptions): Promise<string>
  }
  pay: {
    /** Starts a checkout from a payment link */
    start(body: Body<"startLinkCheckout">, options?: RequestOptions): Promise<api.LinkCheckout>
    /** The status of a checkout, and what is needed to pay it. With `wait`, the answer comes as soon as the checkout is no longer `pending` or `verifying`, and at once where too many requests wait; the request counts once against the rate limit. With `txHash`, it also comes when that submission is refused: anyone may submit a hash, so a refused one does not change the checkout. While less than the amount has arrived, the checkout is `verifying` and `message` names the missing amount. After `expiresAt`, or once the merchant has deleted it, `message` asks for no money and `payTo` is left out; the status stays until all blocks up to then are read, mostly for less than a minute. Then it becomes `expired` with the exception `underpaid`, and the money that arrived waits for the merchant, who accepts or returns it. */
    status(id: string, query?: Query<"readPayStatus">, options?: RequestOptions): Promise<api.PayStatus>
    /** Submits the transaction hash of a checkout's payment. A hint that finds the transfer sooner; the checkout would be confirmed without it. `GET /api/pay/status/:id?txHash=` returns the result for the hash. A wrong hash leaves the checkout payable and emits no event. A checkout that runs out of time ends as `failed` if only refused hashes were submitted, and as `expired` if none was. */
    confirm(body: Body<"confirmPayment">, options?: RequestOptions): Promise<api.PaymentConfirmed>
    /** Stores the payer's answers before the payment. For payments that are not submitted as a hash: `POST /api/pay/confirm` takes the same answers beside one. The newest answers count, until the checkout is confirmed. */
    answer(body: Body<"answerPayerFields">, options?: RequestOptions): Promise<api.PayerFieldsAnswered>
    /** Pays a checkout by a signed authorization; the service pays the gas. The payer signs `TransferWithAuthorization` (EIP-3009) in the token's EIP-712 domain, to `payTo` and for exactly the missing amount; the service relays it. Sending the same authorization again returns the same answer and never makes a second transfer. `validBefore` is at most two hours after the checkout ends; the checkout's end is a good choice. `GET /api/pay/status/:id` returns the result. An authorization whose transaction failed is public, and anyone can submit it until `validBefore`. So that nobody pays twice, the next one must have the same `from` and `nonce`, unless the failed one was cancelled on chain or has expired. A checkout with `capture` other than `direct` takes `ReceiveWithAuthorization` with the fields that its status answer lists, and only this service can carry it out. */
    authorize(body: Body<"authorizePayment">, options?: RequestOptions): Promise<api.PaymentAuthorized>
    /** Issues the nonce of one signature, valid for ten minutes */
    createReturnNonce(body: Body<"createReturnNonce">, options?: RequestOptions): Promise<api.ReturnAddressMessage>
    /** Names the address to which open money is to be returned. The wallet that sent the money signs a message (EIP-4361; contract wallets by ERC-1271) that names the domain of `BASE_URL`, the URI `<BASE_URL>/api/pay/return-address`, the network, the nonce, and the single resource `urn:sluice:return:<id>:<address in lower case>`. The merchant decides whether the money is returned. The newest signature counts. A payer who paid from an exchange can't sign for the exchange's wallet, and has to ask the merchant. */
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
    /** Deactivates a product; one that is already inactive stays so. No checkout of it can be created any more. A payment link has the price of its creation, and goes on selling: switch it off too. The links of a product with `billingInterval` end with it. */
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
    /** Deactivates a payment link; checkouts already started can still be paid, and an inactive link stays so */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
  }
  subscriptions: {
    /** All subscriptions that have begun, newest first */
    list(query?: Query<"listSubscriptions">, options?: RequestOptions): Pages<Item<"listSubscriptions", "data">, api.SubscriptionList>
    /** All subscriptions that match the filter, as CSV */
    export(query?: Query<"exportSubscriptions">, options?: RequestOptions): Promise<string>
    /** One subscription with its invoices */
    get(id: string, options?: RequestOptions): Promise<api.SubscriptionWithInvoices>
    /** Moves a subscription to another product, from its next invoice on */
    update(id: string, body: Body<"changeSubscription">, options?: RequestOptions): Promise<api.Subscription>
    /** Pauses a subscription. Its open invoice is closed, and none is made until it is resumed. What is paid stays open to the subscriber. */
    pause(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Subscription>
    /** Resumes a paused subscription, or keeps one that was to end with its period. After the paid time is over, periods are counted from now: time that nobody had is not billed. */
    resume(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Subscription>
    /** Cancels a subscription, at once or at its period's end. `period_end` can be taken back until then with `resume`. A subscription that is canceled can't be resumed. */
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
  }
  payments: {
    /** Payments that need a decision or got one, newest first. Payments that were too small, too large, late, made twice, in another token or from a sender on a sanctions list. An `open` one waits for you: accept it, or return it. So does the `surplus` of a granted one. */
    list(query?: Query<"listExceptionalPayments">, options?: RequestOptions): Pages<Item<"listExceptionalPayments", "data">, api.PaymentList>
    /** Accepts an open payment, so that it counts as paid. Grants access or confirms the checkout, with the usual events. Where the checkout is already confirmed, the money is yours in addition, and no event is sent twice. The money is divided or swept like any other, in its own token. The surplus of a granted payment buys nothing more: it is divided or swept as the rest was. */
    accept(id: string, body?: Body<"acceptPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Payment>
    /** Sends an open payment back, once. Sends all of it, or the surplus alone where the payment is granted, in its own token, to `address`. Without `address` it goes to the address that the payer named by signature (`returnAddress`); it never goes to its sender by default, which may be an exchange. To send it to an address other than the one the payer named, set `confirm: true`. Where the receiving address names a wallet as `approver`, it needs that wallet's signature: the first request is answered with `RETURN_APPROVAL_REQUIRED` and the data to sign. */
    return(id: string, body: Body<"returnPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Payment>
    /** Sends up to 50 open payments back, each as by itself. Each is returned or refused by itself, so send the whole list first without `approval`, sign what is asked for, and send it again with another `Idempotency-Key`. One that was returned before is refused, and nothing is sent twice. */
    returnMany(body: Body<"returnPayments">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.PaymentsReturned, "data">>
    /** Captures reserved money, all of it or a part. The amount is on its way to your payout address; the checkout's `escrow.captured` has it once its transaction is confirmed, and the first capture confirms the checkout. Captures add up. What is not captured before `escrow.captureBefore` goes back to the payer. */
    capture(body: Body<"capturePayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Capture>
    /** Releases what is left of reserved money to its payer */
    void(body: Body<"voidPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Void>
    /** The shares of a payment, in the order of its split; none without one */
    listShares(id: string, options?: RequestOptions): Promise<At<api.ShareList, "data">>
    /** A payment with its transfers, address, payouts, events and timeline. Takes any id that `GET /api/console/timeline/:id` takes: that of a checkout, say, for all payments of it. */
    get(id: string, options?: RequestOptions): Promise<api.PaymentStory>
  }
  refunds: {
    /** Refunds a captured payment through escrow, in full or in part. The money comes out of the payout wallet that got the payment, which allows it once for all of its open refunds: `approval.call` is what it signs. The refund then continues, and `payment.refunded` is sent when it is mined. Open refunds count against what is left. Only one refund of a wallet is under way at a time. */
    create(body: Body<"refundPayment">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Refund>
    /** All refunds, newest first */
    list(query?: Query<"listRefunds">, options?: RequestOptions): Pages<Item<"listRefunds", "data">, api.RefundList>
    /** One refund */
    get(id: string, options?: RequestOptions): Promise<api.Refund>
    /** Withdraws a refund that is not signed yet. The refund is `failed` then and keeps its id; its amount can be refunded again. One that waits for your wallet's approval can always be withdrawn. What the wallet has approved by then stays approved: withdraw that there. */
    withdraw(id: string, options?: RequestOptions): Promise<api.Refund>
  }
  webhooks: {
    /** Registers an endpoint, and shows its secret only this once. The service first sends a signed `ping` to the address. Any answer is accepted except a redirect, 404, 410, 502, 503 and 504: a receiver may refuse a `ping` because it does not have the secret yet. `X-Webhook-Notice` says when the address can be reached only because of WEBHOOK_ALLOW_CIDRS. */
    create(body: Body<"createWebhook">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.WebhookCreated, "data">>
    /** All endpoints, including paused ones */
    list(query?: Query<"listWebhooks">, options?: RequestOptions): Pages<Item<"listWebhooks", "data.webhooks">, api.WebhookList>
    /** One endpoint with every field except its secret */
    get(id: string, options?: RequestOptions): Promise<At<api.WebhookAnswer, "data">>
    /** Changes the given fields; pauses and resumes the endpoint. A new `url` is tried first, as at registration. Events emitted while the endpoint is paused can be sent later. `settings.webhook_changed` notifies every endpoint that this one was moved or paused, or gets other events, and this one at its old `url`. */
    update(id: string, body: Body<"changeWebhook">, options?: RequestOptions): Promise<At<api.WebhookAnswer, "data">>
    /** Removes an endpoint, and notifies it of that with `settings.webhook_changed`. Nothing else is sent to it afterwards, but for what a process took to send in the second before. Its deliveries can still be read. */
    delete(id: string, options?: RequestOptions): Promise<At<api.WebhookDeleted, "data">>
    /** Sends a `ping`, or the example of another event, the same way as any event. An example is marked: its body has `test: true` beside `event`, and its ids belong to nothing. A receiver must not act on it. A paused endpoint gets it too. Read the delivery for the result. */
    test(id: string, body?: Body<"testWebhook">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.DeliveryAnswer, "data">>
    /** Creates a new secret and shows it only this once. For 24 hours both secrets sign: `Service-Signature` has a `v1` for each, the newest first. Every endpoint is notified with `settings.webhook_changed`. */
    rollSecret(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.WebhookSecretRolled, "data">>
    /** Sends again every delivery that failed or was skipped since a given time */
    recover(id: string, body: Body<"recoverWebhook">, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.Recovered, "data">>
    /** The deliveries to one endpoint, sent and pending */
    listDeliveries(id: string, query?: Query<"listDeliveries">, options?: RequestOptions): Pages<Item<"listDeliveries", "data">, api.DeliveryList>
    /** How many deliveries to an endpoint arrived, and how long its answers took. A delivery counts in the period in which it was made, with all its attempts. */
    stats(id: string, query?: Query<"readWebhookStats">, options?: RequestOptions): Promise<At<api.WebhookStats, "data">>
  }
  deliveries: {
    /** The deliveries to every endpoint and `callbackUrl`, sent and pending. Filters combine: a delivery must match all of them. Resend one with `POST /api/console/deliveries/:id/resend`. */
    list(query?: Query<"listAllDeliveries">, options?: RequestOptions): Pages<Item<"listAllDeliveries", "data">, api.DeliveryList>
    /** One delivery with every attempt */
    get(id: string, options?: RequestOptions): Promise<At<api.DeliveryWithAttemptsAnswer, "data">>
    /** Sends a delivery again now. Works in every state. It replaces a planned retry, and starts the count of attempts again. To a paused endpoint it is sent once. */
    resend(id: string, options?: RequestOptions & { idempotencyKey?: string }): Promise<At<api.DeliveryAnswer, "data">>
  }
  events: {
    /** Every event: when it is sent and to whom, the JSON Schema of its body, and an example */
    listTypes(options?: RequestOptions): Promise<At<api.EventTypeList, "data">>
    /** Events, exactly as they are sent */
    list(query?: Query<"listEvents">, options?: RequestOptions): Pages<Item<"listEvents", "data">, api.EventList>
    /** One event, exactly as it is sent. `GET /api/console/deliveries?eventId=` lists where it was sent. */
    get(id: string, options?: RequestOptions): Promise<At<api.EventAnswer, "data">>
  }
  listeners: {
    /** Makes an endpoint without a URL, and shows its secret only this once. Its deliveries are pulled instead of sent, so that they reach a machine that nobody can connect to. They are rows like any other, with the same retries, and can be sent again. Every endpoint is notified with `settings.webhook_changed`. At most three; one that nobody pulls for ten minutes ends by itself. In live mode the merchant's setting `liveListeners` has to allow it. */
    create(body: Body<"createListener">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.ListenerCreated>
    /** The listeners that have not ended */
    list(query?: Query<"listListeners">, options?: RequestOptions): Pages<Item<"listListeners", "data">, api.ListenerList>
    /** Ends a listener; what is still due of it is skipped */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Takes deliveries that are due, as a stream or a long poll. For a caller that accepts `text/event-stream`, and without `wait`, the answer is a stream of server-sent events: `delivery` for each, with the JSON of one in `data`, and `over` when the listener has ended. At most ten are taken that have no result yet; report each with `POST …/results`. One without a result is given again when its lease ends, 30 seconds after WEBHOOK_TIMEOUT, with the same `deliveryId`. Several callers may pull one listener: they share its deliveries, and no two get the same one. */
    pull(id: string, query?: Query<"pullDeliveries">, options?: RequestOptions): Promise<At<api.PulledDeliveryList, "data">>
    /** Reports what receivers answered to deliveries that were pulled. A status from 200 to 299 without an `error` delivers it; after any other result it is retried like a delivery to a URL. The log of the delivery has what was reported. A repeated report changes nothing. */
    report(id: string, body?: Body<"reportResults">, options?: RequestOptions): Promise<api.ResultsRecorded>
  }
  splits: {
    /** Creates a split: 2 to 50 recipients whose percentages add up to exactly 100 */
    create(body: Body<"createSplit">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Split>
    /** All splits, newest first */
    list(query?: Query<"listSplits">, options?: RequestOptions): Pages<Item<"listSplits", "data">, api.SplitList>
    /** One split with every field */
    get(id: string, options?: RequestOptions): Promise<api.Split>
    /** Changes the given fields; the list of recipients is replaced as a whole. Applies to receiving addresses from now on: each address says itself who shares what it gets, so every paywall with this split gets a new one. What reaches an old address within the hour, or was paid before, is paid to the recipients of that address; what comes later waits for you as an exception (`late`), and is paid to them if you accept it. Checkouts keep their addresses. */
    update(id: string, body: Body<"changeSplit">, options?: RequestOptions): Promise<api.SplitChanged>
    /** Deletes a split for ever; payments already made keep its recipients */
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
    /** Every payout with the payments inside it, as CSV. One line for each payment inside each payout that was mined in the period: sweeps and captures to you, and shares to the recipients of your splits. The lines of a payout add up to its amount, to the base unit. `valueReceived` is by the rate at the payment's time, `valuePaid` by the rate at the payout's. */
    payouts(query?: Query<"reportPayouts">, options?: RequestOptions): Promise<string>
    /** What was held, came in and went out, by network and token, as CSV. For each network and token: what your receiving addresses and escrows held at the start of the period, what came in and went out by reason, and what they held at its end. */
    balance(query?: Query<"reportBalance">, options?: RequestOptions): Promise<string>
    /** What was received and given back by month, with its value, as CSV. For each month of the time zone `tz`, network and token: received for payments, returned and refunded to payers, and the difference. Values are those of the single transfers, each by the rate at its time, added up. `unvalued` counts transfers without a known rate: they are in the amounts and not in the values. */
    tax(query?: Query<"reportTax">, options?: RequestOptions): Promise<string>
  }
  receipts: {
    /** Receipts of payments, refunds, captures, releases and reversals, newest first. A list has no keys: nobody can read a receipt with it. The file has them. */
    list(query?: Query<"listReceipts">, options?: RequestOptions): Pages<Item<"listReceipts", "data">, api.ReceiptEntryList>
    /** Receipts with their keys, in their order, as a file that proves itself. A line of JSON for each receipt, and a last one that says how many there are. `npx @sluice/verify FILE` shows that none is changed, and that none is left out. Keep it as you keep your books: with it anyone can read these receipts. */
    export(query?: Query<"exportReceipts">, options?: RequestOptions): Promise<Answer<"exportReceipts">>
  }
  erasures: {
    /** Erases the personal data of one customer. Name the customer by exactly one of `customerEmail`, `payer` and `checkoutId`. Of their checkouts, subscriptions and refunds it erases e-mail addresses, what payers entered, metadata, descriptions, addresses of pages and reasons; of events the data; of deliveries what servers answered. Try it with `dryRun` first. It can't be undone. */
    create(body: Body<"eraseCustomer">, options?: RequestOptions): Promise<api.ErasureResult>
    /** Erasures of customers' data, newest first; not whose it was */
    list(query?: Query<"listErasures">, options?: RequestOptions): Pages<Item<"listErasures", "data">, api.ErasureList>
  }
  overview: {
    /** The figures of a time in periods, those of the time before it, and what needs you. A figure has the time of its entry in the books: the block of a transfer, or when a payout was first seen in a block. So a refund, or a payment that is reversed, subtracts in the period in which that happens, and the period of the payment stays as it was. The books of the same time have the same sums, but for reversed payments: the books leave them out, and here they are in `received` and in `reversed`. Nothing is added across tokens or networks. */
    get(query?: Query<"readOverview">, options?: RequestOptions): Promise<api.Overview>
    /** What is at your receiving addresses and in the escrow by the books, by network and token */
    getBalances(options?: RequestOptions): Promise<At<api.Balances, "data">>
  }
  deposits: {
    /** The receiving addresses and their terms, newest first */
    list(query?: Query<"listDeposits">, options?: RequestOptions): Pages<Item<"listDeposits", "data">, api.DepositList>
    /** All receiving addresses and their terms, as CSV: everything needed to recover their money without the service */
    export(query?: Query<"exportDeposits">, options?: RequestOptions): Promise<string>
    /** What a receiving address commits to: who can ever get its money. `keccak256(abi.encode(salt, owner, approver, payeesHash, openAfter))` is the CREATE2 salt of a plain ERC-1167 clone, so the address can be computed from the answer. `sluice verify-address` does so offline. */
    terms(address: string, options?: RequestOptions): Promise<api.DepositTerms>
  }
  foreignTokens: {
    /** Tokens at your receiving addresses that you sell nothing for, newest first. Tokens that somebody sent to a receiving address by mistake, found in final blocks without a submitted hash while the address was watched, usually half an hour later. Nothing here counts as a payment. Tokens whose contract says that the address holds nothing are left out, and of one address at most 20 are listed. Ether leaves no log, so it is never listed; it can be recovered at any time. */
    list(query?: Query<"listForeignTokens">, options?: RequestOptions): Pages<Item<"listForeignTokens", "data">, api.ForeignTokenList>
  }
  bundles: {
    /** Puts an API behind a price, route by route */
    create(body: Body<"createBundle">, options?: RequestOptions & { idempotencyKey?: string }): Promise<api.Bundle>
    /** All bundles, including inactive ones */
    list(query?: Query<"listBundles">, options?: RequestOptions): Pages<Item<"listBundles", "data">, api.BundleList>
    /** One bundle with its routes; of the secret headers the names */
    get(id: string, options?: RequestOptions): Promise<api.Bundle>
    /** Changes the given fields; calls that are being served end as they began */
    update(id: string, body: Body<"changeBundle">, options?: RequestOptions): Promise<api.Bundle>
    /** Deactivates a bundle; one that is already inactive stays so */
    delete(id: string, options?: RequestOptions): Promise<api.Deleted>
    /** Calls that were paid for and that the origin failed, the latest first */
    listFailures(id: string, query?: Query<"listBundleFailures">, options?: RequestOptions): Pages<Item<"listBundleFailures", "data">, api.BundleFailureList>
  }
  agents: {
    /** Buys what a slug names: a paywall's content, or a payment link; or describes a bundle of calls. Without a payment it answers 402 with what to pay, in versions 1 and 2 of x402. With one in `PAYMENT-SIGNATURE` (or `X-PAYMENT`) it settles the payment and answers once. The answer has the result in `PAYMENT-RESPONSE` (or `X-PAYMENT-RESPONSE`) and a `Sluice-Retry-Token`, which repeats the answer for a day without another payment. */
    buyBySlug(slug: string, query?: Query<"buyBySlug">, options?: RequestOptions): Promise<api.SlugAnswer>
    /** Buys a paywall's content. Without a payment it answers 402 with what to pay, in versions 1 and 2 of x402. With one in `PAYMENT-SIGNATURE` (or `X-PAYMENT`) it settles the payment and answers once. The answer has the result in `PAYMENT-RESPONSE` (or `X-PAYMENT-RESPONSE`) and a `Sluice-Retry-Token`, which repeats the answer for a day without another payment. */
    buyPaywall(id: string, body?: Body<"buyPaywall">, options?: RequestOptions): Promise<api.AgentPurchase>
    /** How an agent's payment stands. For the `statusUrl` of a 202. Once it is settled, repeat the request with its `Sluice-Retry-Token`. */
    getPayment(id: string, options?: RequestOptions): Promise<api.AgentPayment>
    /** What this installation sells to agents, where its merchants listed it */
    discover(options?: RequestOptions): Promise<api.Offers>
  }
  facilitator: {
    /** What the facilitator settles: versions, schemes and networks */
    supported(options?: RequestOptions): Promise<api.X402Supported>
    /** Whether a buyer's payment can be settled; nothing is written */
    verify(body: Body<"verifyX402Payment">, options?: RequestOptions): Promise<api.X402Verified>
    /** Carries a buyer's payment out, once. Answers `success: true` once for a payment, when its transfer is in a block. The same payment again is answered `duplicate_settlement` with its `transaction`, or, with the `Idempotency-Key` of the first call, the first answer. One that takes longer than `maxTimeoutSeconds` is answered `settlement_pending`, and goes on. */
    settle(body: Body<"settleX402Payment">, options?: RequestOptions): Promise<api.X402Settled>
    /** How a settlement stands that one of the merchant's servers asked for */
    getSettlement(from: string, nonce: string, options?: RequestOptions): Promise<api.X402Settlement>
  }
  subscriber: {
    /** Issues the nonce of one sign-in, valid for ten minutes, and the message to sign */
    createNonce(body: Body<"createSubscriberNonce">, options?: RequestOptions): Promise<api.SignInMessage>
    /** Signs a wallet in to see and cancel its subscriptions, for a quarter of an hour. The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/subscriptions/token`, a network of this service, the nonce, and the single resource `urn:sluice:subscriptions`. A wallet that signs with the key of its address sees its subscriptions on every network; a contract wallet (ERC-1271) those of the network that the message names, as a contract at one address can have another owner on each. */
    signIn(body: Body<"signInSubscriber">, options?: RequestOptions): Promise<api.SubscriberSignIn>
    /** What the wallet has subscribed to, with the invoice that can be paid. Those that it began: whoever pays later, a subscription is of the wallet that paid first. */
    listSubscriptions(query?: Query<"listOwnSubscriptions">, options?: RequestOptions): Pages<Item<"listOwnSubscriptions", "data">, api.OwnSubscriptionList>
    /** The invoices of one of the wallet's subscriptions, with their receipts */
    listInvoices(id: string, query?: Query<"listOwnInvoices">, options?: RequestOptions): Pages<Item<"listOwnInvoices", "data">, api.OwnInvoiceList>
    /** Cancels a subscription with the time that is paid. Until then it can be taken back with `resume`. An open invoice is closed, unless somebody has begun to pay it. Where the paid time is over, the subscription ends at once. */
    cancel(id: string, body?: Body<"cancelOwnSubscription">, options?: RequestOptions): Promise<api.OwnSubscription>
    /** Keeps a subscription that was to end with the time that is paid. One that its merchant has paused, its merchant resumes. */
    resume(id: string, body?: Body<"resumeOwnSubscription">, options?: RequestOptions): Promise<api.OwnSubscription>
  }
  audit: {
    /** Who changed what, when and from where, newest first. An entry for each change of your configuration and each decision about money, written together with it: whatever was refused left none. Entries are kept for ever, and never changed, but for texts about a customer whose data was erased. They have the addresses that requests came from, and an API key with the scope `console` reads them too. */
    list(query?: Query<"listAuditEntries">, options?: RequestOptions): Pages<Item<"listAuditEntries", "data">, api.AuditEntryList>
    /** All entries that match the filter, as CSV. `before` and `after` are JSON. A text that a spreadsheet would run as a formula begins with an apostrophe. */
    export(query?: Query<"exportAuditEntries">, options?: RequestOptions): Promise<string>
  }
  requests: {
    /** The requests of your people and API keys in the last 30 days, newest first. An entry is written within a second after the answer. It has no body of a request, and of a path only its pattern. A call of an assistant's tool is `/mcp/` with the tool's name, beside the requests that the tool makes. What payers and strangers ask for is not here. Under load some are dropped and counted, so a request that is not here may have been made: changes are in the audit log, none missing. */
    list(query?: Query<"listRequests">, options?: RequestOptions): Pages<Item<"listRequests", "data">, api.LoggedRequestList>
    /** The requests with an `X-Request-Id`. A list, as a caller can choose the id, and use it again. */
    find(id: string, options?: RequestOptions): Promise<At<api.LoggedRequestsFound, "data">>
  }
  timeline: {
    /** What happened to anything, why it stands as it does, and what can be done now */
    get(id: string, options?: RequestOptions): Promise<api.Timeline>
  }
  payouts: {
    /** What left for your wallet, for recipients of splits and back to payers, newest first */
    list(query?: Query<"listPayouts">, options?: RequestOptions): Pages<Item<"listPayouts", "data">, api.PayoutList>
    /** All payouts that match the filter, as CSV */
    export(query?: Query<"exportPayouts">, options?: RequestOptions): Promise<string>
    /** One payout with its gas and attempts, and why it stands as it does */
    get(id: string, options?: RequestOptions): Promise<api.PayoutStory>
    /** Which payments a payout carries, and how much of each. Each transfer that a sweep took a part of, newest first; of a share, return or capture the one payment. The parts add up to the payout, to the base unit, also after the network has taken a payment back. */
    listPayments(id: string, query?: Query<"listPayoutPayments">, options?: RequestOptions): Pages<Item<"listPayoutPayments", "data">, api.PayoutPartList>
  }
  search: {
    /** Finds anything by its id, hash, address, e-mail address, slug, name, amount or metadata. Text is compared as a whole, in any case; of a name its beginning is enough. Metadata is found by text, numbers and booleans at its top level, in at most 50 fields of a checkout. */
    find(query: Query<"search">, options?: RequestOptions): Promise<At<api.Matches, "data">>
  }
  payers: {
    /** Who paid, each with what they paid, those who paid last first */
    list(query?: Query<"listPayers">, options?: RequestOptions): Pages<Item<"listPayers", "data">, api.PayerList>
    /** A payer by address or e-mail address: paid, refunded, subscriptions and access */
    get(payer: string, options?: RequestOptions): Promise<api.PayerWhole>
  }
  health: {
    /** Each network, what of yours waits, and what is wrong, in words. What only the operator of the service can see and mend, such as an endpoint of a network that lies, is in `/readyz` and the metrics. */
    get(options?: RequestOptions): Promise<api.ServiceHealth>
  }
  changes: {
    /** What changed in your lists, in the order of commits. Ask once without `after` for the position now, read your lists, then ask with `after` again and again. Changes are kept for 24 hours. Each comes at least once. `GET /api/console/stream` sends the same as server-sent events. */
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
