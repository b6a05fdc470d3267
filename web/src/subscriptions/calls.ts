/** The requests of a subscriber's page. The token is kept only in the page. */
import type { BillingPeriod } from "../page-data.ts"
import { call, post } from "../pay/api.ts"
import { accountOf, chainOf, signMessage } from "../pay/wallet-calls.ts"
import type { Wallet } from "../pay/wallets.ts"

export interface Session {
  token: string
  address: string
}

/** A subscription in the form that its subscriber gets. */
export interface Subscription {
  id: string
  merchant: string
  product: string
  amount: string
  currency: string
  billingInterval: BillingPeriod["interval"]
  billingCount: number
  status: "active" | "payment_due" | "past_due" | "paused" | "canceled"
  paidUntil: string
  accessUntil: string
  cancelAtPeriodEnd: boolean
  canResume: boolean
  nextDueAt: string | null
  endsAt: string | null
  openInvoice: { id: string; amount: string; currency: string; dueAt: string } | null
}

export interface Invoice {
  id: string
  status: "open" | "paid" | "void" | "unpaid"
  amount: string
  currency: string
  periodStart: string
  periodEnd: string
  receiptUrl: string | null
}

/** How many subscriptions are requested at a time. */
export const PAGE = 20

/** Signs in with a wallet, by a signature. The message names the wallet's current network if the service knows it. */
export async function signIn({ provider }: Wallet): Promise<Session> {
  const account = await accountOf(provider)
  const offer = await post<{ message: string; chainIds: number[] }>("/api/subscriptions/nonce", { address: account })
  const chainId = await chainOf(provider).catch(() => undefined)
  // A contract can sign for itself only on its own network.
  const message = offer.chainIds.includes(chainId ?? 0)
    ? offer.message.replace(/^Chain ID: \d+$/m, `Chain ID: ${chainId}`)
    : offer.message
  const signature = await signMessage(provider, account, message)
  const { accessToken, address } = await post<{ accessToken: string; address: string }>("/api/subscriptions/token", {
    message,
    signature,
  })
  return { token: accessToken, address }
}

/** A page of the wallet's subscriptions, newest first. */
export const listOf = ({ token }: Session, offset: number): Promise<{ data: Subscription[]; total: number }> =>
  call("GET", `/api/subscriptions?limit=${PAGE}&offset=${offset}`, { token })

/** A page of a subscription's invoices, newest first. */
export const invoicesOf = (
  { token }: Session,
  id: string,
  offset: number,
): Promise<{ data: Invoice[]; total: number }> =>
  call("GET", `/api/subscriptions/${id}/invoices?limit=${PAGE}&offset=${offset}`, { token })

/** Cancels a subscription at the end of the paid period, or withdraws the cancellation. */
export const change = ({ token }: Session, id: string, what: "cancel" | "resume"): Promise<Subscription> =>
  call("POST", `/api/subscriptions/${id}/${what}`, { token, body: {} })
