/** The terms of an escrow as its contract takes them. Pure. */
import { authorizationNonce, type PaymentInfo } from "../chain/escrow.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "../chain/hex.ts"
import type { Row } from "../db/schema.ts"

/** The terms that the payer signs: all of an escrow's row that is hashed. */
export type EscrowTerms = Pick<
  Row<"escrows">,
  | "chain_id"
  | "escrow"
  | "token"
  | "operator"
  | "receiver"
  | "max_amount"
  | "pre_approval_expiry"
  | "authorization_expiry"
  | "refund_expiry"
  | "salt"
>

/** Unix time in whole seconds. */
export const secondsOf = (date: Date): number => Math.floor(date.getTime() / 1_000)

/** The terms with their payer, as every call of the contract takes them. Nobody takes a fee. */
export const paymentInfoOf = (terms: EscrowTerms, payer: Address): PaymentInfo => ({
  operator: terms.operator,
  payer,
  receiver: terms.receiver,
  token: terms.token,
  maxAmount: terms.max_amount,
  preApprovalExpiry: secondsOf(terms.pre_approval_expiry),
  authorizationExpiry: secondsOf(terms.authorization_expiry),
  refundExpiry: secondsOf(terms.refund_expiry),
  minFeeBps: 0,
  maxFeeBps: 0,
  feeReceiver: ZERO_ADDRESS,
  salt: BigInt(terms.salt),
})

/** The nonce that any payer of these terms signs. */
export const nonceOf = (terms: EscrowTerms): Hash =>
  authorizationNonce(paymentInfoOf(terms, ZERO_ADDRESS), terms.chain_id, terms.escrow)
