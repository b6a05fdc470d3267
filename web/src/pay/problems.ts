/** Describes problems in the payer's words. Pure. */
import type { Catalogue } from "../i18n/en.ts"
import type { Translate } from "../i18n/words.ts"
import { Refusal } from "./api.ts"
import { WalletFault } from "./wallet-calls.ts"

const submissionWords: Record<string, keyof Catalogue> = {
  reverted: "hashReverted",
  no_transfer: "hashNoTransfer",
  wrong_recipient: "hashWrongRecipient",
  wrong_asset: "hashWrongAsset",
  already_used: "hashUsed",
  not_found: "hashNotFound",
}

const refusalWords: Record<string, keyof Catalogue> = {
  RELAY_UNAVAILABLE: "relayUnavailable",
  CHAIN_UNAVAILABLE: "networkSilent",
  SESSION_EXPIRED: "expired",
  PAYMENTS_PAUSED: "pausedWords",
  SANCTIONS_MATCH: "sanctioned",
  RATE_LIMITED: "busy",
  OFFLINE: "offline",
  INVALID_TX_HASH: "hashInvalid",
  TXHASH_ALREADY_USED: "hashUsed",
  ALREADY_VERIFIED: "hashUsed",
  BAD_ADDRESS: "addressInvalid",
  ACCESS_REQUIRED: "noAccess",
  LINK_UNAVAILABLE: "linkEndedWords",
  LINK_NOT_FOUND: "linkEndedWords",
}

/** The most characters of a wallet's own message that are shown. */
const LONGEST_PROBLEM = 300

type Values = Record<string, string>

/** Why a submitted hash is not a payment. For a reason without words here, it is the server's own sentence. */
export function submissionProblem(t: Translate, reason: string | null, message: string, values: Values): string {
  const key = submissionWords[reason ?? ""]
  return key ? t(key, values) : message
}

/**
 * What went wrong with a wallet or at the server. `isReserving`: the payment is a reservation, so no transfer can
 * replace the signature.
 */
export function problemMessage(t: Translate, error: Error, values: Values, isReserving = false): string {
  if (error instanceof WalletFault) {
    if (error.kind === "rejected") return t("rejected")
    return error.kind === "busy"
      ? t("walletBusy")
      : t("walletFailed", { problem: error.message.slice(0, LONGEST_PROBLEM) })
  }
  if (error instanceof Refusal) {
    if (error.code === "AUTHORIZATION_REFUSED") return t("signatureRefused", { problem: error.message })
    if (isReserving && error.code === "RELAY_UNAVAILABLE") return t("reservePaused")
    const key = refusalWords[error.code]
    if (key) return t(key, values)
  }
  return t("somethingWrong", { problem: error.message })
}
