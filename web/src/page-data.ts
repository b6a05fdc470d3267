/**
 * The data that the server writes into a page, and sends to it while it is open. Both sides share it, so it imports
 * only types.
 */
import type { Language } from "./i18n/languages.ts"

/** A network as people know it: its name, and what a wallet needs to add it. */
export interface NetworkFacts {
  chainId: number
  title: string
  /** A public node, for wallets that do not know the network; null where there is none. */
  rpcUrl: string | null
  /** The URL of an explorer, without a path; null where the network has none. */
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

/** The branding of a merchant's pages, and where they may be shown. */
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

/** What a payer signs to reserve a payment (EIP-3009), under the token's domain. */
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
  /** Reserved, and neither captured nor released. */
  left: string
  /** The end of the time in which the merchant may capture. */
  captureBefore: string
  /**
   * `held`: the merchant may still capture what is left. `releasing`: that time is over, and the rest is being
   * released. `reclaimable`: the payer may take it back.
   */
  phase: "held" | "releasing" | "reclaimable"
  /**
   * The transaction with which the payer takes back what is left, once `after` has passed; null where nothing is left.
   */
  reclaim: { after: string; to: string; data: string } | null
  /** The data to sign; null when there is nothing to sign. */
  terms: ReserveTerms | null
  moves: Move[]
}

/** The length of a subscription's periods. */
export interface BillingPeriod {
  interval: "day" | "week" | "month" | "year"
  count: number
}

/** The subscription that a checkout begins or renews. */
export interface Renewal extends BillingPeriod {
  product: string
  /** Free days before the first period; 0 once the subscription has begun. */
  trialDays: number
  /** How many periods are billed; null: until somebody cancels. */
  maxPeriods: number | null
}

/** An invoice of a subscription that has begun. */
interface InvoiceStatus {
  id: string
  /** due: within the grace. past_due: after it. canceled: its subscription is over. */
  state: "open" | "due" | "past_due" | "paid" | "void" | "canceled"
  periodStart: string
  periodEnd: string
  /** Whether its period is not over yet. */
  lasts: boolean
  dueAt: string
  /** Until when access lasts without a payment. */
  graceUntil: string
  /** When the subscription ends without a payment. */
  endsAt: string
}

/** Money of one sender that waits for the merchant's decision. */
export interface WaitingMoney {
  paymentId: string
  payer: string
  /** Decimal text in whole tokens; in base units where the decimals of the token are not known. */
  amount: string
  /** The token's symbol, or its address where it has none that can be shown. */
  currency: string
  /** Whether it is the token that was asked for. */
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
  /** What the merchant has returned, beside `amountReceived`; only of checkouts. */
  amountReturned?: string
  /** Seen on chain and not confirmed yet. */
  arriving: string
  /** Neither received nor arriving. */
  missing: string
  payTo?: string
  paused: boolean
  /** The network was not read for a while, so recent payments are not known. */
  stale: boolean
  /** Whether a signed payment is being carried out. */
  relaying: boolean
  /** Whether a payment by signature is possible now. */
  gasless: boolean
  redirectUrl: string | null
  /** The transactions that brought `amountReceived`, oldest first; only once it is paid, and at most ten. */
  txHashes: string[]
  /** The greatest ten of the sums that wait for the merchant's decision. */
  waiting: WaitingMoney[]
  expiresAt: string
  /** Whether it was paid before, and a reorg removed that. */
  reversed?: boolean
  /** Whether its time is over, even if the chain was not read up to that time. */
  over: boolean
  payerFields: string[]
  confirmations: number
  requiredConfirmations: number
  /** Only for a checkout whose payment is reserved first, which has no address to send money to. */
  reservation?: Reservation
  submission: { txHash: string; status: string; reason: string | null; message: string } | null
  /** Only for a subscription; null for its first checkout until the subscription has begun. */
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
 * The state of one address's payment to a paywall, in the form of a checkout's. Before a payment exists, nothing of it
 * is known.
 */
export interface PaywallStatus extends CheckoutStatus {
  /** The address that was asked about, with its checksum; null where none was. */
  address: string | null
  /** Until when that address has access; null without access. */
  accessUntil: string | null
}

/** `/paywall/:id`. */
export interface PaywallPage extends PageBase {
  kind: "paywall"
  name: string
  description: string | null
  /** Seconds of access for one payment; null without an end. */
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
  /** Null where the payer chooses. */
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
  /** The checkout or paywall that it was paid to. */
  resourceId: string
  amount: string
  /** The token's symbol, or its address where it has none that can be shown. */
  currency: string
  payer: string
}

/** `/subscriptions`. It belongs to no merchant, as a wallet may have subscribed to many. */
export interface SubscriptionsPage extends Pick<PageBase, "lang" | "sandbox"> {
  kind: "subscriptions"
}

/** The data that the script finds in a page. */
export type PageData = CheckoutPage | PaywallPage | LinkPage | EndedPage | ReturnPage | SubscriptionsPage

/** A page where something is paid. */
export type PayPage = CheckoutPage | PaywallPage
