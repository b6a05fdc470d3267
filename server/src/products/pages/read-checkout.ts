/** Reads what the page of a checkout shows: its state, and the facts that do not change. */
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { CheckoutPage, CheckoutStatus } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { isStale } from "../../ledger/scanner/watch-scan-lag.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount, parseAmount } from "../../platform/money/amount.ts"
import { sessionShown, statusOf } from "../checkouts/read-status.ts"
import { httpLink } from "./html.ts"
import { pageBase } from "./load-page-base.ts"
import { arrivalKey, moneyOfSession, reversedPayment, walletStatus } from "./queries.ts"
import { reservedStatus, standingOfSession } from "./read-escrow.ts"
import { invoiceStatus, renewalOf } from "./read-invoice.ts"
import { transactionsTo, waitingMoney } from "./read-money.ts"

/** The data of a session's page; `SESSION_NOT_FOUND`. */
export async function checkoutPage(ctx: TxContext, id: string, lang: Language): Promise<CheckoutPage> {
  const session = await sessionShown(ctx, id)
  const network = networkOf(ctx.chain, session.chain_id)
  const [base, status, renewal] = await Promise.all([
    pageBase(ctx, { merchantId: session.merchant_id, network, lang }),
    checkoutStatus(ctx, id),
    renewalOf(ctx, session),
  ])
  const description = session.description === null ? null : shown(session.description)
  return {
    kind: "checkout",
    ...base,
    // The description of a renewal is its product's name, which the page shows anyway.
    description: description === renewal?.product ? null : description,
    ...(renewal ? { renewal } : {}),
    status,
  }
}

/** The state of a session for its page, at the start and after each change; `SESSION_NOT_FOUND`. */
export async function checkoutStatus(ctx: TxContext, id: string, txHash?: Hash): Promise<CheckoutStatus> {
  const session = await sessionShown(ctx, id)
  const network = networkOf(ctx.chain, session.chain_id)
  const relayer = hasRelayer(ctx, network.chainId)
  const [status, stale, gasless, standing, sent, invoice, waiting, txHashes, reversed] = await Promise.all([
    statusOf(ctx, session, txHash),
    isStale(ctx, network.chainId),
    relayer,
    standingOfSession(ctx, session),
    session.capture === "direct" ? transferStatus(ctx, network, session, relayer) : undefined,
    invoiceStatus(ctx, session),
    waitingMoney(ctx, session),
    // Nothing shows them before.
    session.status === "confirmed" ? transactionsTo(ctx, session) : [],
    isReversed(ctx, session),
  ])
  const moving = standing && { ...reservedStatus(ctx, network, standing, status.authorization ?? null), gasless }
  const money = moving ?? sent
  if (!money) throw new Error("a session has no receiving address")
  const { sessionId, exception, message, amount, amountReceived, amountReturned, paused, redirectUrl } = status
  const { expiresAt, payerFields, confirmations, requiredConfirmations, submission } = status
  return {
    sessionId,
    status: status.status,
    exception,
    message,
    amount,
    amountReceived,
    amountReturned,
    ...money,
    // A voided invoice must not be paid, even before its session is closed.
    ...(invoice?.state === "void" ? { over: true } : {}),
    ...(invoice === undefined ? {} : { invoice }),
    ...(reversed ? { reversed } : {}),
    ...(status.payTo === undefined ? {} : { payTo: status.payTo }),
    paused,
    stale,
    redirectUrl: httpLink(redirectUrl),
    txHashes,
    waiting,
    expiresAt,
    payerFields,
    confirmations,
    requiredConfirmations,
    submission,
  }
}

/** Whether a session that is not paid was paid before, and a reorg removed that. Its merchant was notified of both. */
async function isReversed(ctx: TxContext, { id, status, event_sequence }: Row<"checkout_sessions">): Promise<boolean> {
  if (event_sequence < 2 || !["pending", "verifying", "expired"].includes(status)) return false
  return (await reversedPayment(ctx.db, id)) === true
}

/** The amounts on their way to a checkout's address, and missing there. */
async function transferStatus(
  ctx: TxContext,
  { token }: NetworkInfo,
  session: Row<"checkout_sessions">,
  relayer: Promise<boolean>,
): Promise<Pick<CheckoutStatus, "arriving" | "missing" | "relaying" | "gasless" | "over">> {
  const money = await moneyOfSession(ctx.db, arrivalKey(session.id, token.address))
  if (!money) throw new Error("a session has no receiving address")
  const { seen, arriving: here, relaying } = money
  // Money that counts already is not asked for again, whatever changes on chain.
  const missing = session.status === "confirmed" || here >= session.amount ? 0n : session.amount - here
  return {
    arriving: formatAmount(seen, token.decimals),
    missing: formatAmount(missing, token.decimals),
    relaying,
    gasless: (await relayer) && missing >= parseAmount(ctx.settings.minAmount, token.decimals),
    over: ctx.now() > session.expires_at,
  }
}

/** Whether a relay wallet is working, so that signed payments can be carried out. */
async function hasRelayer(ctx: TxContext, chainId: number): Promise<boolean> {
  const { relayWallet } = ctx.settings
  if (relayWallet === undefined) return false
  return (await walletStatus(ctx.db, `${chainId} ${relayWallet}`)) === "active"
}
