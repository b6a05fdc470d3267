/** Words and amounts for a payment that is reserved first. Pure: the server and the browser both use it. */
import type { Catalogue } from "../i18n/en.ts"
import type { Translate } from "../i18n/words.ts"
import type { CheckoutStatus, PageBase, Reservation } from "../page-data.ts"
import { localAmount } from "../ui/amounts.ts"
import { momentOf } from "../ui/moments.ts"
import { isZero, type Stage } from "./stage.ts"
import type { StageMessage } from "./words-of.ts"

/** An amount with the transactions that moved it. */
interface LedgerLine {
  name: keyof Catalogue
  amount: string
  txHashes: string[]
}

/** The amounts reserved, captured, released and refunded, without any that are zero; empty before a reservation. */
export function ledgerOf({ authorized, captured, left, released, refunded, moves }: Reservation): LedgerLine[] {
  const line = (name: keyof Catalogue, amount: string, kind?: Reservation["moves"][number]["kind"]) => ({
    name,
    amount,
    txHashes: moves.filter(move => move.kind === kind).map(({ txHash }) => txHash),
  })
  const lines = [
    line("amountReserved", authorized, "reserve"),
    line("paidAmount", captured, "capture"),
    line("amountLeft", isZero(captured) ? "0" : left),
    line("amountReleased", released, "release"),
    line("amountRefunded", refunded, "refund"),
  ]
  return lines.filter(({ amount }) => !isZero(amount))
}

/** The words for the rest of a partly captured payment. */
const restOf = { held: "takenPart", releasing: "takenReleasing", reclaimable: "takenTakeBack" } as const

/** The transaction that takes back the rest, as a list of facts; empty before its time has come. */
export const reclaimFacts = ({ phase, reclaim }: Reservation): { name: keyof Catalogue; value: string }[] =>
  phase === "reclaimable" && reclaim
    ? [
        { name: "escrowContract", value: reclaim.to },
        { name: "transactionData", value: reclaim.data },
      ]
    : []

/** The heading and the sentence of a stage of such a payment; undefined if they are the same as for any checkout. */
export function reservationMessage(
  t: Translate,
  page: PageBase,
  { amount, reservation, stage, zone }: Pick<CheckoutStatus, "amount" | "reservation"> & Shown,
): StageMessage | undefined {
  if (!reservation) return undefined
  const local = (amount: string) => localAmount(amount, page.lang)
  const { capture, captured, left, released, refunded, captureBefore, phase, reclaim } = reservation
  const values = {
    merchant: page.merchant,
    symbol: page.token.symbol,
    amount: local(amount),
    paid: local(captured),
    released: local(released),
    refunded: local(refunded),
    left: local(left),
    time: momentOf(phase === "held" || !reclaim ? captureBefore : reclaim.after, page.lang, { zone }),
  }
  switch (stage) {
    case "pay":
      return { title: "", text: t(capture === "manual" ? "reserveTerms" : "reserveAtOnce", values), tone: "neutral" }
    case "reserving":
      return { title: t("reserving"), text: t("reservingWords"), tone: "wait" }
    case "reserved":
      if (phase === "releasing") return { title: t("releasing"), text: t("releasingWords", values), tone: "wait" }
      if (phase === "reclaimable") return { title: t("takeBack"), text: t("takeBackWords", values), tone: "warn" }
      return capture === "manual"
        ? {
            title: t("reserved", { time: values.time.replaceAll(" ", "\u00a0") }),
            text: t("reservedWords", values),
            tone: "good",
          }
        : { title: t("reservedAtOnce"), text: t("reservedAtOnceWords", values), tone: "wait" }
    case "paid": {
      const rest = !isZero(left) ? restOf[phase] : !isZero(released) ? "takenRest" : "paidWords"
      const back = isZero(refunded) ? "" : ` ${t("refundedPart", values)}`
      return { title: t("paid"), text: t(rest, values) + back, tone: "good" }
    }
    case "released":
      return { title: t("released"), text: t("releasedWords", values), tone: "neutral" }
    case "refunded":
      return { title: t("refunded"), text: t("refundedWords", values), tone: "neutral" }
    case "expired":
      return { title: t("expired"), text: t("reserveExpired", values), tone: "bad" }
    case "failed":
      return { title: t("failed"), text: t("reserveFailedWords", values), tone: "bad" }
    case "paused":
      return { title: t("paused"), text: t("reservePaused"), tone: "bad" }
    default:
      return undefined
  }
}

interface Shown {
  stage: Stage
  /** The time zone of a page that does not know its reader's. */
  zone?: "UTC" | undefined
}
