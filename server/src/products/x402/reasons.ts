/**
 * Why a payment is refused: the strings of the specification (`specs/x402-specification-v2.md`, section 9), each with a
 * sentence.
 */

const reasons = {
  invalid_payload: "The payload is not one of this scheme.",
  unsupported_scheme: "Only the scheme `exact` is taken here.",
  invalid_network: "This network is not served, or not the one that was asked for.",
  invalid_payment_requirements:
    "The payment was signed for other requirements. Ask again, and pay what is asked for now.",
  invalid_exact_evm_payload_recipient_mismatch: "The authorization pays another address than `payTo`.",
  invalid_exact_evm_payload_authorization_value: "The authorization must be of exactly the price.",
  invalid_exact_evm_payload_authorization_valid_after: "The authorization is not valid yet.",
  invalid_exact_evm_payload_authorization_valid_before:
    "The authorization ends too soon: it must be valid for at least six seconds more.",
  invalid_exact_evm_payload_signature: "The signature is not the payer's.",
  insufficient_funds: "The wallet holds less than the price.",
  invalid_transaction_state: "The token refuses the transfer.",
  invalid_exact_evm_nonce_already_used:
    "The authorization was used or cancelled before. If it was carried out, its money has arrived: look there before you sign another.",
  duplicate_settlement: "This authorization was settled before, and its result was answered.",
  sanctions_match: "A party of the payment is on a sanctions list.",
  settlement_pending: "The payment is being carried out. Ask again; do not sign another.",
  invalid_exact_evm_transaction_failed: "The transfer failed on chain.",
  settlement_failed: "The transfer was not carried out, and nothing was paid.",
} as const

export type Reason = keyof typeof reasons

/** A refusal: the specification's reason, and a sentence that says what is wrong. */
export interface Refusal {
  reason: Reason
  words: string
}

/** Creates a refusal with the reason's own sentence, or a more specific one. */
export const refuse = (reason: Reason, words: string = reasons[reason]): Refusal => ({ reason, words })
