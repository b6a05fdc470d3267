/** The facts of each state that a payment, checkout, payout, refund, subscription, invoice or event can have, for the test of its words. */
import type { CheckoutFacts } from "../src/products/insight/checkout-standing.ts"
import { explainCheckout } from "../src/products/insight/checkout-standing.ts"
import { type DeliveryFacts, explainEvent } from "../src/products/insight/event-standing.ts"
import { explainPayment, type PaymentFacts } from "../src/products/insight/payment-standing.ts"
import { explainPayout, type PayoutFacts } from "../src/products/insight/payout-standing.ts"
import { explainRefund, type RefundFacts } from "../src/products/insight/refund-standing.ts"
import type { Standing } from "../src/products/insight/standing.ts"
import {
  explainInvoice,
  explainSubscription,
  type InvoiceFacts,
  type SubscriptionFacts,
} from "../src/products/insight/subscription-standing.ts"

const at = (text: string) => new Date(`2026-03-${text}Z`)
const now = at("01T12:00:00")
const later = at("02T12:00:00")
const WALLET = "0x0A"
const pay = "pay_1"

const payout: PayoutFacts = {
  id: "po_1",
  kind: "sweep",
  state: "queued",
  heldReason: null,
  heldDetail: null,
  amount: "50.00 USDC",
  recipient: WALLET,
  triedAt: later,
  minedAt: null,
  stopped: false,
  paymentId: null,
  sessionId: null,
  refundId: null,
  replacedBy: null,
}
const payment: PaymentFacts = {
  id: pay,
  status: "granted",
  exception: null,
  amount: "5.00 USDC",
  price: "5.00 USDC",
  payer: "0x0B",
  openCheckout: null,
  sessionId: "cs_1",
  acceptedAt: null,
  returnedTo: null,
  surplus: null,
  buys: true,
  acceptable: true,
  beside: false,
  hasReturnAddress: false,
  payouts: [],
  sweepAt: later,
}
const waits = {
  id: pay,
  amount: "3.00 USDC",
  exception: "underpaid",
  buys: true,
  acceptable: true,
  hasReturnAddress: false,
} as const
const checkout: CheckoutFacts = {
  id: "cs_1",
  status: "pending",
  exception: null,
  capture: "direct",
  amount: "5.00 USDC",
  received: "0.00 USDC",
  missing: null,
  expiresAt: later,
  now,
  url: "https://pay.example/pay/cs_1",
  isPaused: false,
  refusal: null,
  depth: null,
  paymentId: null,
  open: [],
  escrow: null,
}
const escrow = {
  authorized: "5.00 USDC",
  captured: "5.00 USDC",
  refunded: "0.00 USDC",
  left: null,
  captureBefore: later,
  refundBefore: at("31T12:00:00"),
  isCapturing: false,
}
const held = { ...escrow, captured: "0.00 USDC", left: "5.00 USDC", refundBefore: null }
const refundCall: PayoutFacts = { ...payout, kind: "refund", amount: "2.00 USDC", sessionId: "cs_1", refundId: "re_1" }
const refund: RefundFacts = {
  id: "re_1",
  status: "pending",
  amount: "2.00 USDC",
  sessionId: "cs_1",
  message: null,
  call: refundCall,
}
const subscription: SubscriptionFacts = {
  id: "sub_1",
  status: "active",
  paidUntil: later,
  accessUntil: at("05T12:00:00"),
  cancelAtPeriodEnd: false,
  cancelAskedBy: null,
  cancelReason: null,
  blockedBy: null,
  pausedAt: null,
  endedAt: null,
  invoice: null,
  cancelsAt: null,
}
const due = {
  invoice: { id: "inv_1", url: "https://pay.example/invoice/inv_1", amount: "9.00 USDC" },
  cancelsAt: at("31T12:00:00"),
}
const invoice: InvoiceFacts = {
  status: "open",
  amount: "9.00 USDC",
  dueAt: later,
  paidAt: null,
  now,
  url: "https://pay.example/invoice/inv_1",
  subscriptionId: "sub_1",
  sessionId: "cs_1",
}
const delivery: DeliveryFacts = {
  id: "dlv_1",
  url: "https://shop.example/hook",
  status: "pending",
  attempts: 0,
  lastError: null,
  nextAt: later,
}
const open = { status: "open", payouts: [], sweepAt: null } as const
/** What buys nothing more. */
const extra = { ...open, buys: false } as const
const back = { ...payout, kind: "return", amount: "5.00 USDC", recipient: "0x0B", paymentId: pay } as const

/** By the name of a state, and what is more to it. */
export const cases: Record<string, Standing> = {
  // Payments
  "payment granted": explainPayment(payment),
  "payment granted, split, sent": explainPayment({
    ...payment,
    sweepAt: null,
    payouts: [{ ...payout, kind: "share", state: "final", amount: "3.00 USDC", paymentId: pay }],
  }),
  "payment granted, swept": explainPayment({ ...payment, sweepAt: null, payouts: [{ ...payout, state: "final" }] }),
  "payment granted, on its way": explainPayment({
    ...payment,
    sweepAt: null,
    payouts: [{ ...payout, state: "assigned" }],
  }),
  "payment granted, payout held": explainPayment({
    ...payment,
    sweepAt: null,
    payouts: [{ ...payout, state: "held", heldReason: "low_gas" }],
  }),
  "payment granted, nothing to pay out": explainPayment({ ...payment, sweepAt: null }),
  "payment granted, accepted": explainPayment({ ...payment, exception: "underpaid", acceptedAt: now }),
  "payment granted, accepted beside another": explainPayment({
    ...payment,
    exception: "duplicate",
    acceptedAt: now,
    beside: true,
  }),
  "payment granted, surplus": explainPayment({
    ...payment,
    exception: "overpaid",
    amount: "6.00 USDC",
    surplus: { amount: "1.00 USDC", state: "open" },
  }),
  "payment open underpaid": explainPayment({
    ...payment,
    ...open,
    exception: "underpaid",
    amount: "3.00 USDC",
    openCheckout: "cs_1",
  }),
  "payment open overpaid": explainPayment({ ...payment, ...extra, exception: "overpaid", amount: "1.00 USDC" }),
  "payment open late": explainPayment({ ...payment, ...open, exception: "late", hasReturnAddress: true }),
  "payment open late, at a paywall": explainPayment({ ...payment, ...open, exception: "late", sessionId: null }),
  "payment open duplicate": explainPayment({ ...payment, ...extra, exception: "duplicate" }),
  "payment open, link used up": explainPayment({ ...payment, ...open, exception: "duplicate" }),
  "payment open wrong_asset": explainPayment({ ...payment, ...open, exception: "wrong_asset", amount: "5.00 EURC" }),
  "payment open sanctioned": explainPayment({ ...payment, ...open, exception: "sanctioned" }),
  "payment open no_buyer": explainPayment({
    ...payment,
    ...extra,
    exception: "no_buyer",
    sessionId: null,
    price: null,
  }),
  "payment returned": explainPayment({
    ...payment,
    status: "returned",
    returnedTo: "0x0B",
    payouts: [back],
    sweepAt: null,
  }),
  "payment returned, sent": explainPayment({
    ...payment,
    status: "returned",
    returnedTo: "0x0B",
    payouts: [{ ...back, state: "final", minedAt: now }],
    sweepAt: null,
  }),
  "payment returned, held": explainPayment({
    ...payment,
    status: "returned",
    returnedTo: "0x0B",
    payouts: [{ ...back, state: "held", heldReason: "simulation", heldDetail: "the token refuses 0x0B" }],
    sweepAt: null,
  }),
  "payment reversed": explainPayment({ ...payment, status: "reversed", sweepAt: null }),
  // Checkouts
  "checkout pending": explainCheckout(checkout),
  "checkout pending, paused": explainCheckout({ ...checkout, isPaused: true }),
  "checkout pending, refused": explainCheckout({ ...checkout, refusal: "The transaction pays another address." }),
  "checkout pending, escrow": explainCheckout({ ...checkout, capture: "manual", escrow: held }),
  "checkout verifying": explainCheckout({ ...checkout, status: "verifying", depth: { have: 1, need: 3 } }),
  "checkout verifying, submitted": explainCheckout({ ...checkout, status: "verifying" }),
  "checkout verifying, underpaid": explainCheckout({
    ...checkout,
    status: "verifying",
    exception: "underpaid",
    received: "3.00 USDC",
    missing: "2.00 USDC",
    open: [waits],
  }),
  "checkout verifying, escrow": explainCheckout({ ...checkout, status: "verifying", capture: "manual", escrow: held }),
  "checkout authorized": explainCheckout({ ...checkout, status: "authorized", capture: "manual", escrow: held }),
  "checkout authorized, automatic": explainCheckout({
    ...checkout,
    status: "authorized",
    capture: "automatic",
    escrow: held,
  }),
  "checkout authorized, capturing": explainCheckout({
    ...checkout,
    status: "authorized",
    capture: "manual",
    escrow: { ...held, isCapturing: true },
  }),
  "checkout authorized, too late": explainCheckout({
    ...checkout,
    status: "authorized",
    capture: "manual",
    escrow: { ...held, captureBefore: now },
  }),
  "checkout confirmed": explainCheckout({ ...checkout, status: "confirmed", received: "5.00 USDC", paymentId: pay }),
  "checkout confirmed, overpaid": explainCheckout({
    ...checkout,
    status: "confirmed",
    exception: "overpaid",
    received: "6.00 USDC",
    paymentId: pay,
    open: [{ ...waits, amount: "1.00 USDC", exception: "overpaid", buys: false }],
  }),
  "checkout confirmed, accepted": explainCheckout({
    ...checkout,
    status: "confirmed",
    exception: "underpaid",
    received: "3.00 USDC",
    paymentId: pay,
  }),
  "checkout confirmed, escrow": explainCheckout({ ...checkout, status: "confirmed", capture: "manual", escrow }),
  "checkout confirmed, escrow, a rest": explainCheckout({
    ...checkout,
    status: "confirmed",
    capture: "manual",
    escrow: { ...escrow, captured: "3.00 USDC", left: "2.00 USDC" },
  }),
  "checkout voided": explainCheckout({ ...checkout, status: "voided", capture: "manual", escrow: held }),
  "checkout partially_refunded": explainCheckout({
    ...checkout,
    status: "partially_refunded",
    capture: "manual",
    escrow: { ...escrow, refunded: "2.00 USDC" },
  }),
  "checkout refunded": explainCheckout({
    ...checkout,
    status: "refunded",
    capture: "manual",
    escrow: { ...escrow, refunded: "5.00 USDC", refundBefore: null },
  }),
  "checkout failed": explainCheckout({
    ...checkout,
    status: "failed",
    expiresAt: now,
    refusal: "The transaction failed.",
  }),
  "checkout failed, link used up": explainCheckout({
    ...checkout,
    status: "failed",
    exception: "duplicate",
    received: "5.00 USDC",
    open: [{ ...waits, amount: "5.00 USDC", exception: "duplicate" }],
  }),
  "checkout failed, escrow": explainCheckout({ ...checkout, status: "failed", capture: "manual", escrow: held }),
  "checkout failed, escrow, over": explainCheckout({
    ...checkout,
    status: "failed",
    capture: "manual",
    escrow: held,
    expiresAt: now,
  }),
  "checkout expired, from a listed address": explainCheckout({
    ...checkout,
    status: "expired",
    expiresAt: now,
    open: [{ ...waits, amount: "5.00 USDC", exception: "sanctioned" }],
  }),
  "checkout expired, of an invoice that was replaced": explainCheckout({
    ...checkout,
    status: "expired",
    exception: "late",
    expiresAt: now,
    received: "5.00 USDC",
    open: [{ ...waits, amount: "5.00 USDC", exception: "late", buys: false, acceptable: false }],
  }),
  "checkout expired": explainCheckout({ ...checkout, status: "expired", expiresAt: now }),
  ...Object.fromEntries(
    (["underpaid", "late", "wrong_asset", "duplicate", "overpaid"] as const).map(exception => [
      `checkout expired, ${exception}`,
      explainCheckout({
        ...checkout,
        status: "expired",
        exception,
        expiresAt: now,
        received: "3.00 USDC",
        open: [{ ...waits, exception, buys: exception !== "duplicate", hasReturnAddress: exception === "late" }],
      }),
    ]),
  ),
  // Payouts
  ...Object.fromEntries(
    (
      [
        "share",
        "sweep",
        "return",
        "authorize",
        "settle",
        "batch",
        "reserve",
        "capture",
        "void",
        "refund",
        "anchor",
        "store",
      ] as const
    ).map(kind => [
      `payout final, ${kind}`,
      explainPayout({
        ...payout,
        kind,
        state: "final",
        minedAt: now,
        paymentId: kind === "share" || kind === "return" ? pay : null,
        sessionId: ["reserve", "capture", "void", "refund"].includes(kind) ? "cs_1" : null,
      }),
    ]),
  ),
  "payout queued": explainPayout(payout),
  ...Object.fromEntries(
    (["short", "sanctions", "simulation", "low_gas", "reverted", "gas_budget"] as const).map(heldReason => [
      `payout held, ${heldReason}`,
      explainPayout({ ...payout, state: "held", heldReason }),
    ]),
  ),
  "payout held, reverted, parked": explainPayout({ ...payout, state: "held", heldReason: "reverted", triedAt: null }),
  "payout held, allowance": explainPayout({ ...refundCall, state: "held", heldReason: "allowance" }),
  "payout held, balance": explainPayout({ ...refundCall, state: "held", heldReason: "balance" }),
  "payout assigned": explainPayout({ ...payout, state: "assigned" }),
  "payout mined": explainPayout({ ...payout, state: "mined", minedAt: now }),
  "payout reverted": explainPayout({ ...payout, state: "reverted" }),
  "payout reverted, replaced": explainPayout({ ...payout, state: "reverted", replacedBy: "po_2" }),
  "payout reverted, refund": explainPayout({ ...refundCall, state: "reverted" }),
  "payout reverted, capture": explainPayout({ ...payout, kind: "capture", state: "reverted", sessionId: "cs_1" }),
  "payout reverted, authorize": explainPayout({ ...payout, kind: "authorize", state: "reverted" }),
  "payout cancelled": explainPayout({ ...payout, state: "cancelled" }),
  "payout cancelled, by the operator": explainPayout({ ...payout, state: "cancelled", stopped: true }),
  "payout cancelled, return": explainPayout({ ...back, state: "cancelled" }),
  "payout cancelled, refund": explainPayout({
    ...refundCall,
    state: "cancelled",
    heldDetail: "The time to refund is over.",
  }),
  "payout cancelled, capture": explainPayout({ ...payout, kind: "capture", state: "cancelled", sessionId: "cs_1" }),
  "payout cancelled, settle": explainPayout({ ...payout, kind: "settle", state: "cancelled" }),
  // Refunds
  "refund pending": explainRefund(refund),
  "refund pending, held": explainRefund({
    ...refund,
    message: "Your payout wallet's balance is too low for the refund. The refund continues when there is enough.",
    call: { ...refundCall, state: "held", heldReason: "balance" },
  }),
  "refund pending, sent": explainRefund({ ...refund, call: { ...refundCall, state: "mined", minedAt: now } }),
  "refund needs_approval": explainRefund({
    ...refund,
    status: "needs_approval",
    call: { ...refundCall, state: "held", heldReason: "allowance" },
  }),
  "refund succeeded": explainRefund({
    ...refund,
    status: "succeeded",
    call: { ...refundCall, state: "final", minedAt: now },
  }),
  "refund failed": explainRefund({
    ...refund,
    status: "failed",
    message: "The refund's transaction failed on chain, and nothing was refunded. Request the refund again.",
    call: { ...refundCall, state: "reverted" },
  }),
  // Subscriptions
  "subscription null": explainSubscription({
    ...subscription,
    status: null,
    paidUntil: null,
    accessUntil: null,
    ...due,
  }),
  "subscription active": explainSubscription(subscription),
  "subscription active, ending": explainSubscription({
    ...subscription,
    cancelAtPeriodEnd: true,
    cancelAskedBy: "subscriber",
  }),
  ...Object.fromEntries(
    (["payments_paused", "payout_address", "price"] as const).map(blockedBy => [
      `subscription active, blocked by ${blockedBy}`,
      explainSubscription({ ...subscription, blockedBy }),
    ]),
  ),
  "subscription payment_due": explainSubscription({ ...subscription, status: "payment_due", ...due }),
  "subscription past_due": explainSubscription({ ...subscription, status: "past_due", ...due }),
  "subscription paused": explainSubscription({ ...subscription, status: "paused", pausedAt: now }),
  ...Object.fromEntries(
    (["requested", "unpaid", "completed"] as const).map(cancelReason => [
      `subscription canceled, ${cancelReason}`,
      explainSubscription({ ...subscription, status: "canceled", cancelReason, cancelAskedBy: "both", endedAt: now }),
    ]),
  ),
  // Invoices
  "invoice open": explainInvoice(invoice),
  "invoice open, due": explainInvoice({ ...invoice, dueAt: now, now: later }),
  "invoice paid": explainInvoice({ ...invoice, status: "paid", paidAt: now }),
  "invoice unpaid": explainInvoice({ ...invoice, status: "unpaid" }),
  "invoice void": explainInvoice({ ...invoice, status: "void" }),
  // Events
  "event unsent": explainEvent("checkout.confirmed", []),
  "event delivered": explainEvent("checkout.confirmed", [{ ...delivery, status: "delivered", attempts: 1 }]),
  "event pending": explainEvent("checkout.confirmed", [delivery]),
  "event pending, retrying": explainEvent("checkout.confirmed", [{ ...delivery, attempts: 2, lastError: "HTTP 500" }]),
  "event failed": explainEvent("checkout.confirmed", [
    { ...delivery, status: "failed", attempts: 8, lastError: "the connection was refused", nextAt: null },
  ]),
  "event skipped": explainEvent("checkout.confirmed", [{ ...delivery, status: "skipped" }]),
}
