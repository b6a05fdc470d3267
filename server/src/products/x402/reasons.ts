/**
 * Why a payment is refused: the strings from the specification (`specs/x402-specification-v2.md`, section 9), each
 * with a sentence.
 */

const reasons = {
  invalid_payload: "The payload does not fit this scheme.",
  unsupported_scheme: "Only the scheme `exact` is accepted here.",
  invalid_network: "This network is not served, or is not the requested one.",
  invalid_payment_requirements:
    "The payment was signed for other requirements. Request again, and pay what the new answer asks for.",
  invalid_exact_evm_payload_recipient_mismatch: "The authorization pays an address other than `payTo`.",
  invalid_exact_evm_payload_authorization_value: "The authorization's amount must be exactly the price.",
  invalid_exact_evm_payload_authorization_valid_after: "The authorization is not valid yet.",
  invalid_exact_evm_payload_authorization_valid_before:
    "The authorization ends too soon: it must be valid for at least six more seconds.",
  invalid_exact_evm_payload_signature: "The signature is not the payer's.",
  insufficient_funds: "The wallet holds less than the price.",
  invalid_transaction_state: "The token refuses the transfer.",
  invalid_exact_evm_nonce_already_used:
    "The authorization was already used or cancelled. If it was executed, its money has arrived: check the payment before you sign another authorization.",
  duplicate_settlement: "This authorization was already settled, and its result was already answered.",
  sanctions_match: "A party of the payment is on a sanctions list.",
  settlement_pending: "The payment is in progress. Ask again; do not sign another authorization.",
  invalid_exact_evm_transaction_failed: "The transfer failed on chain.",
  settlement_failed: "The transfer was not executed, and nothing was paid.",
} as const

export type Reason = keyof typeof reasons

/** A refusal: the reason from the specification, and a sentence that says what is wrong. */
export interface Refusal {
  reason: Reason
  words: string
}

/** Creates a refusal with the sentence of the reason, or with a more specific one. */
export const refuse = (reason: Reason, words: string = reasons[reason]): Refusal => ({ reason, words })
