/**
 * The words for each stage of a checkout. Pure: the server writes them into the page, and the browser keeps them
 * current.
 */
import type { Translate } from "../i18n/words.ts"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { localAmount } from "../ui/amounts.ts"
import { invoiceMessage } from "./billing.ts"
import { reservationMessage } from "./reservation.ts"
import { isZero, type Stage } from "./stage.ts"

/** A heading and a text. The heading is empty if the ways to pay need no explanation. */
export interface StageMessage {
  title: string
  text: string
  tone: "neutral" | "warn" | "wait" | "good" | "bad"
}

/** The heading and the sentence of a stage. Times are in `zone`, or else in the reader's. */
export function wordsOf(t: Translate, page: PayPage, status: CheckoutStatus, stage: Stage, zone?: "UTC"): StageMessage {
  const shown = { ...status, stage, zone }
  return reservationMessage(t, page, shown) ?? invoiceMessage(t, page, shown) ?? transferMessage(t, page, status, stage)
}

function transferMessage(t: Translate, page: PayPage, status: CheckoutStatus, stage: Stage): StageMessage {
  const local = (amount: string) => localAmount(amount, page.lang)
  const values = {
    merchant: page.merchant,
    symbol: page.token.symbol,
    network: page.network.title,
    amount: local(status.amount),
    received: local(status.amountReceived),
    returned: local(status.amountReturned ?? "0"),
    missing: local(status.missing),
    arriving: local(status.arriving),
  }
  const { exception } = status
  const isReturned = !isZero(status.amountReturned ?? "0")
  // The merchant has to decide this; the payer can only ask about it.
  const ask = (key: Parameters<Translate>[0]) => `${t(key, values)} ${t("askMerchant", values)}`
  switch (stage) {
    case "pay":
      if (status.reversed)
        return { title: t("reversed"), text: `${t("reversedWords")} ${t("mayStillArrive")}`, tone: "warn" }
      return exception === "wrong_asset"
        ? { title: "", text: t("wrongTokenPay", values), tone: "warn" }
        : { title: "", text: "", tone: "neutral" }
    case "part": {
      const text = isZero(status.arriving) ? t("partWords", values) : t("partWaiting", values)
      return { title: t("partTitle"), text: status.reversed ? `${t("reversedWords")} ${text}` : text, tone: "wait" }
    }
    case "sent":
      return { title: t("sent"), text: t("sentWords"), tone: "wait" }
    case "confirming":
      return { title: t("confirming"), text: t("confirmingWords"), tone: "wait" }
    case "paused":
      if (page.kind === "paywall" && !status.paused)
        return { title: t("notForSale"), text: t("notForSaleWords", values), tone: "bad" }
      return { title: t("paused"), text: t("pausedWords"), tone: "bad" }
    case "unknown":
      return { title: t("unknown"), text: t("unknownWords"), tone: "bad" }
    case "paid": {
      if (page.kind === "paywall") return { title: t("unlocked"), text: "", tone: "good" }
      const plain = isReturned ? "paidReturnedWords" : "paidWords"
      const more = exception === "overpaid" ? "overpaidWords" : exception === "duplicate" ? "duplicateWords" : plain
      return { title: t("paid"), text: t(more, values), tone: "good" }
    }
    case "expired":
      if (exception === "late") return { title: t("late"), text: ask("lateWords"), tone: "bad" }
      if (exception === "wrong_asset") return { title: t("wrongToken"), text: ask("wrongTokenWords"), tone: "bad" }
      if (status.reversed) return { title: t("reversed"), text: ask("reversedWords"), tone: "bad" }
      return {
        title: t("expired"),
        text:
          exception === "underpaid"
            ? ask("expiredPart")
            : t(isReturned ? "expiredReturnedWords" : "expiredWords", values),
        tone: "bad",
      }
    case "failed":
      return {
        title: t("failed"),
        text: exception === "duplicate" ? ask("usedUp") : t("failedWords", values),
        tone: "bad",
      }
    // Only for payments that are reserved first, which have their own words.
    case "reserving":
    case "reserved":
    case "released":
    case "refunded":
      return { title: "", text: "", tone: "neutral" }
  }
}
