/**
 * The data that the server writes into a page, and sends to it while it is open. Both sides share it, so this file
 * imports only types.
 */
import type { Language } from "./i18n/languages.ts"

/** A network as people know it: its name, and the data with which a wallet adds it. */
export interface NetworkFacts {
  chainId: number
  title: string
  /** A public node, for wallets that do not know the network; null if there is none. */
  rpcUrl: string | null
  /** The URL of an explorer, without a path; null if the network has none. */
  explorer: string | null
}

export interface TokenFacts {
  address: string
  symbol: string
  decimals: number
  /** The name and version of its EIP-712 domain. */
  name: string
  version: string
}

/** The branding of a merchant's pages, and the sites that may show them. */
interface Brand {
  /** A path on this server. */
  logo: string | null
  /** As `#rrggbb`. */
  accentColor: string | null
  /** The sites that may show the page in a frame. */
  allowedOrigins: string[]
}

/** The data of every page. */
export interface PageBase {
  lang: Language
  merchant: string
  brand: Brand
  /** Whether this is a sandbox, with worthless money and a test wallet. */
  sandbox: boolean
  network: NetworkFacts
  token: TokenFacts
}

/** One transaction of a payment that is reserved first. */
interface Move {
  kind: "reserve" | "capture" | "release" | "refund"
  txHash: string
}

/** The data that a payer signs to reserve a payment (EIP-3009), under the token's domain. */
interface ReserveTerms {
  primaryType: "ReceiveWithAuthorization"
  to: string
  /** Base units. */
  value: string
  validAfter: string
  validBefore: string
  nonce: string
}

/** A payment that is reserved first and captured later (escrow); amounts are decimal text in whole tokens. */
export interface Reservation {
  capture: "manual" | "automatic"
  /** The reserved amount; zero until the reservation. */
  authorized: string
  captured: string
  released: string
  refunded: string
  /** Reserved, but neither captured nor released. */
  left: string
  /** The end of the period in which the merchant may capture. */
  captureBefore: string
  /**
   * `held`: the merchant may still capture the rest. `releasing`: that period has ended, and the rest is being
   * released. `reclaimable`: the payer may take the rest back.
   */
  phase: "held" | "releasing" | "reclaimable"
  /** The transaction with which the payer takes back the rest, once `after` has passed; null if nothing is left. */
  reclaim: { after: string; to: string; data: string } | null
  /** The data to sign; null if there is nothing to sign. */
  terms: ReserveTerms | null
  moves: Move[]
}

/** The length of a subscription's periods. */
export interface BillingPeriod {
  interval: "day" | "week" | "month" | "year"
  count: number
}

/** The subscription that a checkout starts or renews. */
export interface Renewal extends BillingPeriod {
  product: string
  /** Free days before the first period; 0 once the subscription has started. */
  trialDays: number
  /** How many periods are billed; null if it runs until someone cancels. */
  maxPeriods: number | null
}

/** An invoice of a subscription that has started. */
interface InvoiceStatus {
  id: string
  /** due: within the grace period. past_due: after it. canceled: its subscription has ended. */
  state: "open" | "due" | "past_due" | "paid" | "void" | "canceled"
  periodStart: string
  periodEnd: string
  /** Whether its period has not ended yet. */
  lasts: boolean
  dueAt: string
  /** When access ends without a payment. */
  graceUntil: string
  /** When the subscription ends without a payment. */
  endsAt: string
}

/** Money of one sender that waits for the merchant's decision. */
export interface WaitingMoney {
  paymentId: string
  payer: string
  /** Decimal text in whole tokens; in base units if the token's decimals are not known. */
  amount: string
  /** The token's symbol, or its address if it has no symbol that can be shown. */
  currency: string
  /** Whether it is the requested token. */
  isAsked: boolean
}

/** The state of a checkout; all amounts are decimal text in whole tokens. */
export interface CheckoutStatus {
  sessionId: string
  status:
    | "pending"
    | "verifying"
    | "confirmed"
    | "failed"
    | "expired"
    | "authorized"
    | "voided"
    | "partially_refunded"
    | "refunded"
  exception: "underpaid" | "overpaid" | "late" | "duplicate" | "wrong_asset" | "sanctioned" | "no_buyer" | null
  message: string
  amount: string
  amountReceived: string
  /** The amount that the merchant has returned, in addition to `amountReceived`; only for checkouts. */
  amountReturned?: string
  /** Seen on chain but not confirmed yet. */
  arriving: string
  /** Neither received nor arriving. */
  missing: string
  payTo?: string
  paused: boolean
  /** The network was not read for a while, so recent payments are not known. */
  stale: boolean
  /** Whether a signed payment is in progress. */
  relaying: boolean
  /** Whether a payment by signature is possible now. */
  gasless: boolean
  redirectUrl: string | null
  /** The transactions that paid `amountReceived`, oldest first; only once it is paid, and at most ten. */
  txHashes: string[]
  /** The ten largest sums that wait for the merchant's decision. */
  waiting: WaitingMoney[]
  expiresAt: string
  /** Whether it was paid before, and a reorg removed that payment. */
  reversed?: boolean
  /** Whether its time has ended, even if the chain was not read up to that moment. */
  over: boolean
  payerFields: string[]
  confirmations: number
  requiredConfirmations: number
  /** Only for a checkout whose payment is reserved first. It has no address to send money to. */
  reservation?: Reservation
  submission: { txHash: string; status: string; reason: string | null; message: string } | null
  /** Only for a subscription; null for its first checkout until the subscription has started. */
  invoice?: InvoiceStatus | null
}

/** The pages `/pay/:sessionId`, and `/invoice/:id` for an invoice. */
export interface CheckoutPage extends PageBase {
  kind: "checkout"
  description: string | null
  renewal?: Renewal
  status: CheckoutStatus
}

/**
 * The state of one address's payment to a paywall, in the form of a checkout's. Before a payment exists, nothing about
 * it is known.
 */
export interface PaywallStatus extends CheckoutStatus {
  /** The requested address, with its checksum; null if there was none. */
  address: string | null
  /** When the address's access ends; null without access. */
  accessUntil: string | null
}

/** `/paywall/:id`. */
export interface PaywallPage extends PageBase {
  kind: "paywall"
  name: string
  description: string | null
  /** Seconds of access for one payment; null if access never ends. */
  accessSeconds: number | null
  active: boolean
  /** The subscription that also opens it; null for none. */
  subscription: (Renewal & { amount: string }) | null
  status: PaywallStatus
}

/** `/p/:slug`. */
export interface LinkPage extends PageBase {
  kind: "link"
  slug: string
  title: string
  description: string | null
  /** Null if the payer chooses. */
  amount: string | null
}

/** A link that starts no more checkouts. The page's script only answers the site around it. */
export interface EndedPage extends PageBase {
  kind: "ended"
}

/** `/return/:paymentId`. */
export interface ReturnPage extends PageBase {
  kind: "return"
  paymentId: string
  /** The checkout or paywall that was paid. */
  resourceId: string
  amount: string
  /** The token's symbol, or its address if it has no symbol that can be shown. */
  currency: string
  payer: string
}

/** `/subscriptions`. It belongs to no merchant, because a wallet may have subscriptions with many. */
export interface SubscriptionsPage extends Pick<PageBase, "lang" | "sandbox"> {
  kind: "subscriptions"
}

/** The data that the script finds in a page. */
export type PageData = CheckoutPage | PaywallPage | LinkPage | EndedPage | ReturnPage | SubscriptionsPage

/** A page with a payment. */
export type PayPage = CheckoutPage | PaywallPage
