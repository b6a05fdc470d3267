/** What the server writes into a page, and sends to it while it is open. Shared by both sides, so it imports nothing but types. */
import type { Language } from "./i18n/languages.ts"

/** How people meet a network: its name, and what a wallet needs to add it. */
export interface NetworkFacts {
  chainId: number
  title: string
  /** A public node, for a wallet that does not know the network; null where there is none. */
  rpcUrl: string | null
  /** The address of an explorer without a path; null where the network has none. */
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

/** What a receiving address is made of: with these anyone can compute the address, and see who owns its money. */
export interface AddressTerms {
  factory: string
  salt: string
  owner: string
  openAfter: number
}

/** What every page has. */
export interface PageBase {
  lang: Language
  merchant: string
  /** Whether it is a sandbox, whose money is worth nothing and which has a test wallet. */
  sandbox: boolean
  network: NetworkFacts
  token: TokenFacts
}

/** The state of a checkout; all amounts are decimal text in whole tokens. */
export interface CheckoutStatus {
  sessionId: string
  status: "pending" | "verifying" | "confirmed" | "failed" | "expired"
  exception: "underpaid" | "overpaid" | "late" | "duplicate" | "wrong_asset" | "sanctioned" | null
  message: string
  amount: string
  amountReceived: string
  /** Seen on chain and not confirmed yet. */
  arriving: string
  /** Neither received nor arriving. */
  missing: string
  payTo?: string
  paused: boolean
  /** The network was not read for a while: what was paid lately is not known. */
  stale: boolean
  /** Whether a signed payment is being carried out. */
  relaying: boolean
  /** Whether a payment by signature is possible now. */
  gasless: boolean
  redirectUrl: string | null
  txHash: string | null
  expiresAt: string
  /** Its time is over, whether or not the chain was read up to that time. */
  over: boolean
  payerFields: string[]
  confirmations: number
  requiredConfirmations: number
  submission: { txHash: string; status: string; reason: string | null; message: string } | null
}

/** `/pay/:sessionId`. */
export interface CheckoutPage extends PageBase {
  kind: "checkout"
  description: string | null
  terms: AddressTerms
  status: CheckoutStatus
}
