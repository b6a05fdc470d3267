/** An example body for each event, for the API document and receivers' tests. */
import type { EventData } from "./events.ts"
import type { EventType } from "./webhook.ts"

const ADDRESS = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
const PAYER = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"
const TX_HASH = `0x${"5f".repeat(32)}`
const AT = "2026-01-31T12:00:00.000Z"
const LATER = "2026-02-28T12:00:00.000Z"
const ID = "tz4a98xxat96iws9zmbrgj3a"

const network = { chain: "base", chainId: 8453 }
const about = { description: "Order 1001", metadata: { order: "1001" }, sequence: 1 }
const merchant = { merchantId: `mer_${ID}` }

const checkout = {
  id: `cs_${ID}`,
  sessionId: `cs_${ID}`,
  ...merchant,
  amount: "5.00",
  amountReceived: "5.00",
  currency: "USDC",
  status: "confirmed" as const,
  exception: null,
  txHash: TX_HASH,
  payer: PAYER,
  ...network,
  explorerUrl: `https://basescan.org/tx/${TX_HASH}`,
  productId: null,
  paywallId: null,
  ...about,
  confirmedAt: AT,
  receiptUrl: `https://pay.example/receipt/cs_${ID}`,
}

const unpaid = {
  ...checkout,
  amountReceived: "0.00",
  txHash: null,
  payer: null,
  explorerUrl: null,
  confirmedAt: null,
  receiptUrl: null,
}

const reserved = {
  ...checkout,
  confirmedAt: null,
  receiptUrl: null,
  authId: `0x${"3c".repeat(32)}`,
  authorized: "5.00",
  captured: "0.00",
  released: "0.00",
  captureBefore: LATER,
}

const paywallPayment = {
  paymentId: `pay_${ID}`,
  paywallId: `pw_${ID}`,
  payer: PAYER,
  amount: "5.00",
  currency: "USDC",
  ...network,
  txHash: TX_HASH,
  ...about,
  description: "Film",
  metadata: null,
}

const subscription = {
  subscriptionId: `sub_${ID}`,
  ...merchant,
  productId: `prod_${ID}`,
  cancelReason: null,
  payer: PAYER,
  customerEmail: "ann@example.com",
  paidUntil: AT,
  accessUntil: AT,
  invoiceId: null,
  hostedUrl: null,
  sequence: 3,
}

const invoice = { invoiceId: `inv_${ID}`, hostedUrl: `https://pay.example/pay/cs_${ID}` }

const data: EventData = {
  "checkout.session.completed": checkout,
  "payment.refunded": {
    id: `cs_${ID}`,
    sessionId: `cs_${ID}`,
    refundId: `re_${ID}`,
    ...merchant,
    amount: "2.00",
    totalRefunded: "2.00",
    originalAmount: "5.00",
    currency: "USDC",
    status: "partially_refunded",
    reason: "One of two was broken",
    txHash: TX_HASH,
    ...network,
    explorerUrl: `https://basescan.org/tx/${TX_HASH}`,
    refundRecipient: PAYER,
    productId: null,
    ...about,
    sequence: 2,
  },
  "subscription.renewal.created": {
    subscriptionId: `sub_${ID}`,
    ...invoice,
    checkoutSessionId: `cs_${ID}`,
    amount: "5.00",
    currency: "USDC",
    dueAt: AT,
    periodStart: AT,
    periodEnd: LATER,
    ...merchant,
    productId: `prod_${ID}`,
    customerEmail: "ann@example.com",
    sequence: 2,
  },
  "payment.exception": {
    paymentId: `pay_${ID}`,
    ...merchant,
    sessionId: `cs_${ID}`,
    paywallId: null,
    bundleId: null,
    exception: "underpaid",
    payer: PAYER,
    amount: "4.00",
    currency: "USDC",
    currencyVerified: true,
    token: ADDRESS,
    decimals: 6,
    ...network,
    txHash: TX_HASH,
    updatedAt: AT,
  },
  "subscription.past_due": { ...subscription, status: "past_due", ...invoice },
  "subscription.canceled": { ...subscription, status: "canceled", cancelReason: "requested" },
  "subscription.resumed": { ...subscription, status: "active", paidUntil: LATER, accessUntil: LATER },
  "checkout.confirmed": checkout,
  "checkout.failed": { ...unpaid, status: "failed", txHash: TX_HASH },
  "checkout.expired": { ...unpaid, status: "expired" },
  "checkout.authorized": { ...reserved, status: "authorized" },
  "checkout.voided": { ...reserved, status: "voided", released: "5.00", sequence: 2 },
  "checkout.session.reversed": { ...unpaid, status: "pending", sequence: 2 },
  "paywall.granted": { ...paywallPayment, grantedAt: AT },
  "paywall.reversed": { ...paywallPayment, sequence: 2, reversedAt: AT },
  "settings.payout_address_changed": {
    ...merchant,
    chain: "base",
    payoutAddress: ADDRESS,
    previousAddress: PAYER,
    effectiveAt: AT,
  },
  "settings.split_changed": {
    ...merchant,
    change: "attached",
    splitId: `spl_${ID}`,
    resourceId: `pw_${ID}`,
    productId: null,
    recipients: [
      { address: ADDRESS, percent: 70 },
      { address: PAYER, percent: 30 },
    ],
  },
  "settings.webhook_changed": {
    ...merchant,
    webhookId: `c${ID}`,
    change: "moved",
    url: "https://shop.example",
    newUrl: "https://new.example",
  },
  ping: { webhookId: `c${ID}` },
}

/** The example data of an event, with this merchant's id. */
export function exampleDataOf<T extends EventType>(event: T, merchantId: string): EventData[T] {
  const example = data[event]
  return "merchantId" in example ? { ...example, merchantId } : example
}

/** The body of an event's example. */
export const exampleOf = (event: EventType): object => ({
  id: `evt_${ID}`,
  event,
  createdAt: AT,
  data: data[event],
})
