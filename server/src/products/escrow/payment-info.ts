/** The terms of an escrow in the form that the contract uses. Pure. */
import type { Authorization } from "../../platform/chain/authorizations.ts"
import { authorizationNonce, type PaymentInfo, paymentInfoHash } from "../../platform/chain/escrow.ts"
import { type Address, checksummed, type Hash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { ErrorDetail } from "../../platform/errors.ts"

/** The terms that the payer signs: all columns of an escrow that are hashed. */
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

/** Returns the terms with their payer, in the form that every contract call takes. Nobody takes a fee. */
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

/** Returns the on-chain id of this payer's payment under these terms. */
export const authIdOf = (terms: EscrowTerms, payer: Address): Hash =>
  paymentInfoHash(paymentInfoOf(terms, payer), terms.chain_id, terms.escrow)

/** Returns the nonce that any payer who accepts these terms signs. */
export const nonceOf = (terms: EscrowTerms): Hash =>
  authorizationNonce(paymentInfoOf(terms, ZERO_ADDRESS), terms.chain_id, terms.escrow)

/** Returns the fields that differ from the status answer, because the collector accepts no other values. */
export function authorizationFaults(escrow: Row<"escrows">, given: Authorization): ErrorDetail[] {
  const wanted = {
    to: escrow.collector,
    value: escrow.max_amount,
    validAfter: 0n,
    validBefore: BigInt(secondsOf(escrow.pre_approval_expiry)),
    nonce: escrow.nonce,
  }
  return (["to", "value", "validAfter", "validBefore", "nonce"] as const)
    .filter(name => given[name] !== wanted[name])
    .map(name => ({
      path: `authorization.${name}`,
      message: `must be ${name === "to" ? checksummed(wanted.to) : wanted[name]}, as in \`authorization\` of this checkout's status`,
    }))
}
