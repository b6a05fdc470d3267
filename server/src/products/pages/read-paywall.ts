/** Reads the data of a paywall's page: the offer, and the state of one address's payment. */
import { catalogues } from "../../../../web/src/i18n/all.ts"
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { PaywallPage, PaywallStatus } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { pausedDeposits } from "../../ledger/payouts/check-paused.ts"
import { isStale } from "../../ledger/scanner/watch-scan-lag.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { payToOf } from "../paywalls/manage-paywalls.ts"
import { accessOf } from "../paywalls/read-access.ts"
import { paymentState, publicPaywall } from "../paywalls/submit-payment.ts"
import { pageBase } from "./load-page-base.ts"
import { arrivalKey, openOfPayer } from "./queries.ts"
import { subscriptionOffered } from "./read-invoice.ts"

/** The payer and the transaction; either may be missing. */
export interface Payer {
  address?: Address | undefined
  txHash?: Hash | undefined
}

/** The data of a paywall's page; throws `PAYWALL_NOT_FOUND`. */
export async function paywallPage(ctx: TxContext, id: string, lang: Language): Promise<PaywallPage> {
  const row = await publicPaywall(ctx, id)
  const network = networkOf(ctx.chain, row.chain_id)
  const [base, status, subscription] = await Promise.all([
    pageBase(ctx, { merchantId: row.merchant_id, network, lang }),
    paywallStatus(ctx, id, {}),
    subscriptionOffered(ctx, row),
  ])
  return {
    kind: "paywall",
    ...base,
    name: shown(row.name) || catalogues[lang].payment,
    description: row.description === null ? null : shown(row.description),
    accessSeconds: row.access_duration_s === null ? null : Number.parseInt(row.access_duration_s.toString(), 10),
    active: row.active,
    subscription,
    status,
  }
}

/** The state of a paywall for one payer; throws `PAYWALL_NOT_FOUND`. */
export async function paywallStatus(ctx: TxContext, id: string, payer: Payer): Promise<PaywallStatus> {
  const row = await publicPaywall(ctx, id)
  const network = networkOf(ctx.chain, row.chain_id)
  const { token, confirmations: required } = network
  const text = (amount: bigint) => formatAmount(amount, token.decimals)
  const payTo = await payToOf(ctx, id)
  const { address, txHash } = payer
  const [stale, access, payment, opened] = await Promise.all([
    isStale(ctx, row.chain_id),
    address && accessOf(ctx, row, address),
    address && txHash && stateOf(ctx, row, txHash, address),
    address && openOfPayer(ctx.db, arrivalKey(id, token.address, address)),
  ])
  const paused = (await pausedDeposits(ctx))(network, payTo)
  const open = opened ?? { seen: 0n, confirmed: 0n }
  const here = open.seen + open.confirmed
  const missing = access || here >= row.price ? 0n : row.price - here
  return {
    sessionId: id,
    status: access ? "confirmed" : payment?.status === "verifying" ? "verifying" : "pending",
    exception: !access && open.confirmed > 0n && missing > 0n ? "underpaid" : null,
    message: payment?.message ?? "",
    amount: text(row.price),
    amountReceived: text(access ? row.price : open.confirmed),
    arriving: text(open.seen),
    missing: text(missing),
    ...(row.active && !paused ? { payTo: checksummed(payTo.address) } : {}),
    paused,
    stale,
    relaying: false,
    gasless: false,
    redirectUrl: null,
    txHashes: access ? [access.txHash] : [],
    waiting: [],
    expiresAt: "9999-12-31T23:59:59.999Z",
    over: false,
    payerFields: [],
    confirmations: payment?.confirmations ?? 0,
    requiredConfirmations: Number.parseInt(required.toString(), 10),
    submission: payment && txHash ? { txHash, ...payment } : null,
    address: address === undefined ? null : checksummed(address),
    accessUntil: access ? access.expiresAt.toISOString() : null,
  }
}

/** The state of a submission; undefined if there is none. */
async function stateOf(ctx: TxContext, { id }: Row<"paywalls">, txHash: Hash, address: Address) {
  return await paymentState(ctx, id, txHash, address).catch(error => {
    if (error instanceof ApiError && error.code === "PAYMENT_NOT_FOUND") return undefined
    throw error
  })
}
