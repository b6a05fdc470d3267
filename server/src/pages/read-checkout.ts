/** Reads what the page of a checkout shows: its state, and the facts that do not change. */
import type { Language } from "../../../web/src/i18n/languages.ts"
import type { CheckoutPage, CheckoutStatus } from "../../../web/src/page-data.ts"
import { shown } from "../../../web/src/ui/shown.ts"
import type { Hash } from "../chain/hex.ts"
import { type NetworkInfo, networkOf } from "../chain/networks.ts"
import { sessionOf } from "../checkouts/create-session.ts"
import { statusOf } from "../checkouts/read-status.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { formatAmount, parseAmount } from "../money/amount.ts"
import { arrivingAt } from "../payouts/relays.ts"
import { isStale } from "../scanner/scan-lag.ts"
import { httpLink } from "./html.ts"
import { pageBase } from "./page-base.ts"
import { reservedStatus, standingOfSession } from "./read-escrow.ts"
import { invoiceStatus, renewalOf } from "./read-invoice.ts"
import { transactionsTo, waitingMoney } from "./read-money.ts"

/** Relays that may still move money. */
const OPEN = ["queued", "held", "assigned", "mined"] as const

/** The data of a session's page; `SESSION_NOT_FOUND`. */
export async function checkoutPage(ctx: TxContext, id: string, lang: Language): Promise<CheckoutPage> {
  const session = await sessionOf(ctx, id)
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
  const session = await sessionOf(ctx, id)
  const network = networkOf(ctx.chain, session.chain_id)
  const [status, stale, relayer, standing, invoice, waiting, txHashes, reversed] = await Promise.all([
    statusOf(ctx, id, txHash),
    isStale(ctx, network.chainId),
    hasRelayer(ctx, network.chainId),
    standingOfSession(ctx, session),
    invoiceStatus(ctx, session),
    waitingMoney(ctx, session),
    // Nothing shows them before.
    session.status === "confirmed" ? transactionsTo(ctx, session) : [],
    isReversed(ctx, session),
  ])
  const moving = standing
    ? { ...reservedStatus(ctx, network, standing, status.authorization ?? null), gasless: relayer }
    : await transferStatus(ctx, network, session, relayer)
  const { sessionId, exception, message, amount, amountReceived, paused, redirectUrl } = status
  const { expiresAt, payerFields, confirmations, requiredConfirmations, submission } = status
  return {
    sessionId,
    status: status.status,
    exception,
    message,
    amount,
    amountReceived,
    ...moving,
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
  const payments = ctx.db.selectFrom("payments").select("id").where("resource_id", "=", id)
  return (await payments.where("status", "=", "reversed").limit(1).executeTakeFirst()) !== undefined
}

/** The amounts on their way to a checkout's address, and missing there. */
async function transferStatus(
  ctx: TxContext,
  { token }: NetworkInfo,
  session: Row<"checkout_sessions">,
  hasRelayer: boolean,
): Promise<Pick<CheckoutStatus, "arriving" | "missing" | "relaying" | "gasless" | "over">> {
  const deposit = await depositOf(ctx, session.id)
  const [seen, relaying] = await Promise.all([unconfirmed(ctx, deposit.id, token.address), isRelaying(ctx, deposit.id)])
  const here = await arrivingAt(ctx, deposit.id, token.address)
  // Money that counts already is not asked for again, whatever changes on chain.
  const missing = session.status === "confirmed" || here >= session.amount ? 0n : session.amount - here
  return {
    arriving: formatAmount(seen, token.decimals),
    missing: formatAmount(missing, token.decimals),
    relaying,
    gasless: hasRelayer && missing >= parseAmount(ctx.settings.minAmount, token.decimals),
    over: ctx.now() > session.expires_at,
  }
}

const depositOf = (ctx: TxContext, sessionId: string) =>
  ctx.db.selectFrom("deposits").selectAll().where("resource_id", "=", sessionId).executeTakeFirstOrThrow()

/** The sum that is seen on chain but not deep enough yet, in base units. */
async function unconfirmed(ctx: TxContext, depositId: bigint, token: string): Promise<bigint> {
  const rows = await ctx.db
    .selectFrom("transfers")
    .select("value")
    .where("deposit_id", "=", depositId)
    .where("token", "=", token as never)
    .where("state", "=", "seen")
    .execute()
  return rows.reduce((sum, { value }) => sum + value, 0n)
}

async function isRelaying(ctx: TxContext, depositId: bigint): Promise<boolean> {
  const row = await ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("deposit_id", "=", depositId)
    .where("kind", "=", "authorize")
    .where("state", "in", [...OPEN])
    .limit(1)
    .executeTakeFirst()
  return row !== undefined
}

/** Whether a relay wallet is working, so that signed payments can be carried out. */
async function hasRelayer(ctx: TxContext, chainId: number): Promise<boolean> {
  const { relayWallet } = ctx.settings
  if (relayWallet === undefined) return false
  const row = await ctx.db
    .selectFrom("wallets")
    .select("status")
    .where("chain_id", "=", chainId)
    .where("address", "=", relayWallet)
    .executeTakeFirst()
  return row?.status === "active"
}
