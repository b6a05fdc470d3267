/** What the page of a checkout shows: its state, and the facts that stay the same. */
import type { Language } from "../../../web/src/i18n/languages.ts"
import type { CheckoutPage, CheckoutStatus } from "../../../web/src/page-data.ts"
import { shown } from "../../../web/src/ui/shown.ts"
import type { Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import { sessionOf } from "../checkouts/create-session.ts"
import { statusOf } from "../checkouts/read-status.ts"
import type { Context } from "../context.ts"
import { paidStatuses } from "../escrow/show-escrow.ts"
import { formatAmount, parseAmount } from "../money/amount.ts"
import { arrivingAt } from "../payouts/relays.ts"
import { isStale } from "../scanner/scan-lag.ts"
import { httpLink } from "./html.ts"
import { pageBase } from "./page-base.ts"

/** Relays that may still move money. */
const OPEN = ["queued", "held", "assigned", "mined"] as const

/** The whole page of a session; `SESSION_NOT_FOUND`. */
export async function checkoutPage(ctx: Context, id: string, lang: Language): Promise<CheckoutPage> {
  const session = await sessionOf(ctx, id)
  const network = networkOf(ctx.chain, session.chain_id)
  const [base, status] = await Promise.all([
    pageBase(ctx, { merchantId: session.merchant_id, network, lang }),
    checkoutStatus(ctx, id),
  ])
  return {
    kind: "checkout",
    ...base,
    description: session.description === null ? null : shown(session.description),
    status,
  }
}

/** The state of a session as its page gets it, now and with each change; `SESSION_NOT_FOUND`. */
export async function checkoutStatus(ctx: Context, id: string, txHash?: Hash): Promise<CheckoutStatus> {
  const session = await sessionOf(ctx, id)
  const { token, chainId } = networkOf(ctx.chain, session.chain_id)
  const deposit = await depositOf(ctx, id)
  const [status, seen, stale, relaying, relayer] = await Promise.all([
    statusOf(ctx, id, txHash),
    deposit ? unconfirmed(ctx, deposit.id, token.address) : 0n,
    isStale(ctx, chainId),
    isRelaying(ctx, id, deposit?.id),
    hasRelayer(ctx, chainId),
  ])
  const here = deposit ? await arrivingAt(ctx, deposit.id, token.address) : 0n
  // What counts already is not asked for again, whatever moves on chain.
  const missing = paidStatuses.includes(session.status) || here >= session.amount ? 0n : session.amount - here
  const { sessionId, exception, message, amount, amountReceived, paused, redirectUrl } = status
  const { txHash: paidBy, expiresAt, payerFields, confirmations, requiredConfirmations, submission } = status
  return {
    sessionId,
    status: status.status,
    exception,
    message,
    amount,
    amountReceived,
    arriving: formatAmount(seen, token.decimals),
    missing: formatAmount(missing, token.decimals),
    ...(status.payTo === undefined ? {} : { payTo: status.payTo }),
    paused,
    stale,
    relaying,
    gasless: relayer && missing >= parseAmount(ctx.settings.minAmount, token.decimals),
    redirectUrl: httpLink(redirectUrl),
    txHash: paidBy,
    expiresAt,
    over: ctx.now() > session.expires_at,
    payerFields,
    confirmations,
    requiredConfirmations,
    submission,
  }
}

/** A session's receiving address; none with an escrow. */
const depositOf = (ctx: Context, sessionId: string) =>
  ctx.db.selectFrom("deposits").selectAll().where("resource_id", "=", sessionId).executeTakeFirst()

/** What is seen on chain and not deep enough yet, in base units. */
async function unconfirmed(ctx: Context, depositId: bigint, token: string): Promise<bigint> {
  const rows = await ctx.db
    .selectFrom("transfers")
    .select("value")
    .where("deposit_id", "=", depositId)
    .where("token", "=", token as never)
    .where("state", "=", "seen")
    .execute()
  return rows.reduce((sum, { value }) => sum + value, 0n)
}

async function isRelaying(ctx: Context, sessionId: string, depositId: bigint | undefined): Promise<boolean> {
  const row = await ctx.db
    .selectFrom("payouts")
    .select("id")
    .$if(depositId !== undefined, query =>
      query.where("deposit_id", "=", depositId ?? null).where("kind", "=", "authorize"),
    )
    .$if(depositId === undefined, query => query.where("escrow_id", "=", sessionId).where("kind", "=", "reserve"))
    .where("state", "in", [...OPEN])
    .limit(1)
    .executeTakeFirst()
  return row !== undefined
}

/** Whether a wallet is at work that carries out signed payments. */
async function hasRelayer(ctx: Context, chainId: number): Promise<boolean> {
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
