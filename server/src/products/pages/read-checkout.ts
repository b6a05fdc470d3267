/** Reads the data of a checkout's page: the state, and the facts that do not change. */
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { CheckoutPage, CheckoutStatus } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { isOverdue } from "../../ledger/scanner/watch-scan-lag.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { formatAmount, parseAmount } from "../../platform/money/amount.ts"
import type { SessionState, ShownSession } from "../checkouts/queries.ts"
import { readState, statusOf } from "../checkouts/read-status.ts"
import { httpLink } from "./html.ts"
import { pageBaseOf } from "./load-page-base.ts"
import { checkoutFacts, reversedPayment } from "./queries.ts"
import { reservedStatus, standingOfSession } from "./read-escrow.ts"
import { invoiceStatus, renewalOf } from "./read-invoice.ts"
import { transactionsTo, waitingMoney } from "./read-money.ts"

/** What was read. `isWatchEnding`: whether the watch of the address must be extended. */
interface ReadPage {
  page: CheckoutPage
  isWatchEnding: boolean
}
interface ReadStatus {
  status: CheckoutStatus
  isWatchEnding: boolean
}

/** The data of a session's page; throws `SESSION_NOT_FOUND`. */
export async function checkoutPage(ctx: Context, id: string, lang: Language): Promise<ReadPage> {
  const [read, state] = await readState(ctx, id)
  const { session, isWatchEnding } = state
  const network = networkOf(ctx.chain, session.chain_id)
  const facts = await factsOf(read, session)
  const [status, renewal] = await Promise.all([statusShown(read, state, facts), renewalOf(read, session)])
  const description = session.description === null ? null : shown(session.description)
  const page: CheckoutPage = {
    kind: "checkout",
    ...pageBaseOf(ctx, { face: facts, network, lang }),
    // The description of a renewal is its product's name, which the page already shows.
    description: description === renewal?.product ? null : description,
    ...(renewal ? { renewal } : {}),
    status,
  }
  return { page, isWatchEnding }
}

/** A session's state for its page, read when the page opens and after each change; throws `SESSION_NOT_FOUND`. */
export async function checkoutStatus(ctx: Context, id: string, txHash?: Hash): Promise<ReadStatus> {
  const [read, state] = await readState(ctx, id, txHash)
  const status = await statusShown(read, state, await factsOf(read, state.session))
  return { status, isWatchEnding: state.isWatchEnding }
}

type Facts = NonNullable<Awaited<ReturnType<typeof checkoutFacts>>>

async function factsOf(ctx: TxContext, { id, merchant_id: merchant, chain_id: chain }: ShownSession): Promise<Facts> {
  const token = networkOf(ctx.chain, chain).token.address
  const facts = await checkoutFacts(ctx.db, { id, merchant, chain, token, relayer: ctx.settings.relayWallet })
  if (!facts) throw new Error("a statement has no row of what it was asked")
  return facts
}

async function statusShown(ctx: TxContext, state: SessionState, facts: Facts): Promise<CheckoutStatus> {
  const { session } = state
  const network = networkOf(ctx.chain, session.chain_id)
  // Signed payments can be executed only if the relay wallet is active.
  const gasless = facts.relayer === "active"
  const [status, standing, invoice, waiting, txHashes, reversed] = await Promise.all([
    statusOf(ctx, state),
    standingOfSession(ctx, session),
    invoiceStatus(ctx, session),
    waitingMoney(ctx, session),
    // Before that, nothing shows the transactions.
    session.status === "confirmed" ? transactionsTo(ctx, session) : [],
    isReversed(ctx, session),
  ])
  const sent = session.capture === "direct" ? transferStatus(ctx, network, session, facts) : undefined
  const { looked_at, interval_ms } = facts
  const stale = isOverdue(ctx, interval_ms === null ? undefined : { looked_at, interval_ms })
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
    // A voided invoice must not be paid, even if its session is not closed yet.
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

/** Whether an unpaid session had a payment that a reorg removed. Its merchant was notified of both. */
async function isReversed(ctx: TxContext, { id, status, event_sequence }: ShownSession): Promise<boolean> {
  if (event_sequence < 2 || !["pending", "verifying", "expired"].includes(status)) return false
  return (await reversedPayment(ctx.db, id)) === true
}

/** The amounts that are on their way to a checkout's address, and that are still missing there. */
function transferStatus(
  ctx: TxContext,
  { token }: NetworkInfo,
  session: ShownSession,
  { seen, arriving: here, relaying, relayer }: Facts,
): Pick<CheckoutStatus, "arriving" | "missing" | "relaying" | "gasless" | "over"> {
  if (seen === null || here === null) throw new Error("a session has no receiving address")
  // The page never asks again for money that already counts, whatever changes on chain.
  const missing = session.status === "confirmed" || here >= session.amount ? 0n : session.amount - here
  return {
    arriving: formatAmount(seen, token.decimals),
    missing: formatAmount(missing, token.decimals),
    relaying,
    gasless: relayer === "active" && missing >= parseAmount(ctx.settings.minAmount, token.decimals),
    over: ctx.now() > session.expires_at,
  }
}
