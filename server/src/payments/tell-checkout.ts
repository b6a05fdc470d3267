/** What merchants are told of what was paid: by checkouts and paywalls alike, in the words of both published payloads. */
import { type Address, checksummed, type Hash } from "../chain/hex.ts"
import { explorerUrl, type Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { PaymentException, SessionStatus } from "../db/schema.ts"
import type { Share } from "../payouts/queries.ts"
import { emit } from "../webhooks/emit.ts"
import { amountTeller } from "./tokens.ts"

/** A session, or a paywall's payment, which is told as a session of its own. */
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
  customerEmail: string | null
  payerInfo: Record<string, string> | null
  /** One for each disbursement; null without a split. */
  splits: Share[] | null
  callbackUrl: string | null
  /** What the amounts are in, where that is another than the settlement token. */
  token?: Address
}

/**
 * Tells that something is paid, has failed or expired, each once for ever; call it inside the transaction that makes it so. A
 * session's own callback gets what is paid and nothing else, in place of all endpoints.
 */
export async function tellCheckout(ctx: Context, network: Network, told: Told): Promise<void> {
  const money = { chain_id: network.chainId, token: told.token ?? network.token.address }
  const tell = await amountTeller(ctx, [money])
  const { amount, currency } = tell({ ...money, amount: told.amount })
  const data = {
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
    explorerUrl: told.txHash && explorerUrl(network, told.txHash),
    productId: told.productId,
    paywallId: told.paywallId,
    confirmedAt: told.confirmedAt?.toISOString() ?? null,
    ...(told.customerEmail === null ? {} : { customerEmail: told.customerEmail }),
    ...(told.payerInfo === null ? {} : { payerInfo: told.payerInfo }),
    ...(told.splits === null ? {} : { splits: told.splits }),
  }
  const common = { merchantId: told.merchantId, orderKey: told.id, data }
  const once = <T extends string>(type: T) => ({ type, dedupeKey: `${type}:${told.id}`, ...common })
  if (told.status === "confirmed") {
    const { callbackUrl } = told
    await emit(ctx, { ...once("checkout.session.completed"), ...(callbackUrl === null ? {} : { callbackUrl }) })
  }
  if (told.callbackUrl !== null) return
  if (told.status === "confirmed") await emit(ctx, once("checkout.confirmed"))
  if (told.status === "failed") await emit(ctx, once("checkout.failed"))
  if (told.status === "expired") await emit(ctx, once("checkout.expired"))
}
