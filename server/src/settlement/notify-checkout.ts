/** What merchants are sent about what was paid: by checkouts and paywalls alike, in the words of both published payloads. */
import { type Address, checksummed, type Hash } from "../chain/hex.ts"
import { explorerUrl, type NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { PaymentException, SessionStatus } from "../db/schema.ts"
import type { Share } from "../payouts/queries.ts"
import { amountTeller } from "../scanner/tokens.ts"
import { emit } from "../webhooks/emit.ts"
import { nextSequence } from "./event-sequence.ts"

/** A session, or a paywall's payment, which is notified as a session of its own. */
export interface Told {
  /** `cs_…`, or for a paywall the payment's id. */
  id: string
  merchantId: string
  amount: bigint
  amountReceived: bigint
  status: SessionStatus
  exception: PaymentException | null
  txHash: Hash | null
  payer: Address | null
  confirmedAt: Date | null
  productId: string | null
  paywallId: string | null
  description: string | null
  metadata: Record<string, unknown> | null
  customerEmail: string | null
  payerInfo: Record<string, string> | null
  /** One for each disbursement; null without a split. */
  splits: Share[] | null
  callbackUrl: string | null
  /** What the amounts are in, where that is another than the settlement token. */
  token?: Address
}

/**
 * Emits that something was paid, that a reorg removed it, or that it failed or expired; call it inside the transaction
 * that makes it so. A payment that comes back is a new completion. A reversal goes to whoever was sent the completion, and
 * nothing is reversed that was never sent; failing and expiring are sent once. A session's own callback gets completions and
 * reversals and nothing else, in place of all endpoints.
 */
export async function tellCheckout(
  ctx: TxContext,
  network: NetworkInfo,
  change: "paid" | "reversed" | "failed" | "expired",
  told: Told,
): Promise<void> {
  const { callbackUrl } = told
  const isEnd = change === "failed" || change === "expired"
  if (isEnd && callbackUrl !== null) return
  const sequence = await nextSequence(ctx, told.id, isEnd ? undefined : change === "paid")
  if (sequence === undefined) return
  const data = { ...(await dataOf(ctx, network, told)), sequence }
  const to = callbackUrl === null ? {} : { callbackUrl }
  const common = { merchantId: told.merchantId, orderKey: told.id, data, ...to }
  const once = <T extends string>(type: T) => ({ type, dedupeKey: `${type}:${told.id}`, ...common })
  const each = <T extends string>(type: T) => ({
    ...once(type),
    ...(sequence === 1 ? {} : { dedupeKey: `${type}:${told.id}:${sequence}` }),
  })
  if (change === "paid") await emit(ctx, each("checkout.session.completed"))
  if (change === "paid" && callbackUrl === null) await emit(ctx, each("checkout.confirmed"))
  if (change === "reversed")
    await emit(ctx, {
      ...each("checkout.session.reversed"),
      takesBack: ["checkout.session.completed", "checkout.confirmed"],
    })
  if (change === "failed") await emit(ctx, once("checkout.failed"))
  if (change === "expired") await emit(ctx, once("checkout.expired"))
}

async function dataOf(ctx: TxContext, network: NetworkInfo, told: Told) {
  const money = { chain_id: network.chainId, token: told.token ?? network.token.address }
  const tell = await amountTeller(ctx, [money])
  const { amount, currency } = tell({ ...money, amount: told.amount })
  return {
    id: told.id,
    sessionId: told.id,
    merchantId: told.merchantId,
    amount,
    amountReceived: tell({ ...money, amount: told.amountReceived }).amount,
    currency,
    status: told.status,
    exception: told.exception,
    txHash: told.txHash,
    payer: told.payer && checksummed(told.payer),
    chain: network.name,
    chainId: network.chainId,
    explorerUrl: told.txHash && explorerUrl(ctx.settings.mode, network, told.txHash),
    productId: told.productId,
    paywallId: told.paywallId,
    description: told.description,
    metadata: told.metadata,
    confirmedAt: told.confirmedAt?.toISOString() ?? null,
    ...(told.customerEmail === null ? {} : { customerEmail: told.customerEmail }),
    ...(told.payerInfo === null ? {} : { payerInfo: told.payerInfo }),
    ...(told.splits === null ? {} : { splits: told.splits }),
  }
}
