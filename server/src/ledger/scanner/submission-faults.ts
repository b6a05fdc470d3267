/** Explains why a submission did not lead to access: what happened, and what the buyer can do. */
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { mayBuy } from "../../platform/chain/may-buy.ts"
import type { Token } from "../../platform/chain/network-facts.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { FailureReason } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"

export interface Failure {
  reason: FailureReason
  message: string
}

/** What a submission claims: that `address` (anyone if null) paid at one of `deposits`. */
export interface Claimed {
  address: Address | null
  deposits: ReadonlySet<Address>
  payTo: Address
  token: Token
  network: string
}

/**
 * Returns why this receipt is not a payment by this address to this paywall; undefined if it is such a payment.
 * `ownerOf` returns the owner of an address if the address is one of ours.
 */
export function faultOf(
  receipt: Receipt,
  claimed: Claimed,
  ownerOf: (address: Address) => string | undefined,
): Failure | undefined {
  const { address, deposits, payTo, token, network } = claimed
  const place = `${checksummed(payTo)} on ${network}`
  if (!receipt.succeeded)
    return {
      reason: "reverted",
      message: `The transaction failed on ${network}, so nothing was paid. Send the payment again.`,
    }
  const toUs = receipt.transfers.filter(transfer => deposits.has(transfer.to))
  const inToken = toUs.filter(transfer => transfer.token === token.address)
  if (inToken.some(transfer => address === null || transfer.from === address)) return undefined
  if (inToken[0] && address && !mayBuy({ token }, inToken[0].from)) return noBuyer
  if (inToken[0] && address)
    return {
      reason: "wrong_sender",
      message: `This payment was sent by ${checksummed(inToken[0].from)}, not by ${checksummed(address)}. The access belongs to the sender: submit the payment with that address.`,
    }
  if (toUs[0])
    return {
      reason: "wrong_asset",
      message: `Another token (${checksummed(toUs[0].token)}) arrived instead of ${token.symbol} (${checksummed(token.address)}). Send ${token.symbol}, and ask the merchant to return the other token.`,
    }
  const elsewhere = receipt.transfers.find(transfer => transfer.token === token.address)
  if (!elsewhere)
    return {
      reason: "no_transfer",
      message: `The transaction moved no ${token.symbol}. Send ${token.symbol} to ${place}.`,
    }
  const owner = ownerOf(elsewhere.to)
  return {
    reason: "wrong_recipient",
    message: `The ${token.symbol} went to ${checksummed(elsewhere.to)}${owner ? `, which belongs to ${owner}` : ""}. Pay at ${place}.`,
  }
}

/** The amount that arrived is not enough yet. */
export function underpaid(received: bigint, price: bigint, token: Token): Failure {
  const text = (amount: bigint) => formatAmount(amount, token.decimals)
  return {
    reason: "underpaid",
    message: `${text(received)} of ${text(price)} ${token.symbol} arrived; send ${text(price - received)} more. Or ask the merchant, who can accept or return what arrived.`,
  }
}

/** No endpoint knows the transaction, and the time for finding it has ended. */
export const notFound = (network: string): Failure => ({
  reason: "not_found",
  message: `No transaction with this hash was seen on ${network} within 24 hours. If it is mined later, it still counts.`,
})

/** Messages about money that was not submitted and waits for the merchant. */
export const waitsForMerchant: Record<"underpaid" | "late" | "wrong_asset" | "sanctioned" | "no_buyer", string> = {
  underpaid:
    "Less than the price arrived. Send the rest within seven days, or ask the merchant, who can accept or return what arrived.",
  late: "The payment came after the paywall was switched off or its address replaced. The merchant can accept or return it.",
  wrong_asset: "A token arrived that is not accepted here. The merchant can accept or return it.",
  sanctioned: "The sender is on a sanctions list, so no access can be granted.",
  no_buyer:
    "The money was minted, as bridges do, or sent by its own token contract, so no sender can get access. The merchant can accept or return it.",
}

/** The payment arrived when nothing was for sale at its address. */
export const late: Failure = {
  reason: "late",
  message: waitsForMerchant.late,
}

export const sanctioned: Failure = {
  reason: "sanctioned",
  message: waitsForMerchant.sanctioned,
}

/** Nobody controls the sender's address. */
export const noBuyer: Failure = {
  reason: "wrong_sender",
  message: waitsForMerchant.no_buyer,
}

/** The payment was granted, and then the merchant revoked the access. */
export const alreadyUsed: Failure = {
  reason: "already_used",
  message: "This payment was already used, and the merchant has revoked its access.",
}

/** The messages of a submission that is being verified, has succeeded, or was undone. */
export const statusMessage = {
  verifying: "The payment is being verified. Access is granted once it is confirmed on chain.",
  granted: "The payment is confirmed and access is granted.",
  unsubmitted: "The payment was seen. Submit its hash to verify it now; otherwise it is settled after ten minutes.",
  returned: "The payment was too small, late or in another token, and the merchant has sent it back.",
  reversed:
    "A reorg of the network removed the payment, so access was withdrawn. If the payment is mined again, access returns.",
}
