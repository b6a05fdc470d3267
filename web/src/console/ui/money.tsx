/** Amounts: for people in their own writing, exact to the last digit under the pointer and for the clipboard. */
import { localAmount } from "../../ui/amounts.ts"

interface Given {
  /** Decimal text in whole tokens. */
  amount: string
  currency?: string
  /** What it should have been, where that differs. */
  of?: string | undefined
  size?: "total" | "money" | "figure"
}

const LANGUAGE = navigator.language || "en"

/** An amount in the browser's language; no digit is lost. */
export const amountText = (amount: string): string =>
  /^-?\d+(\.\d+)?$/.test(amount) ? localAmount(amount, LANGUAGE) : amount

/** A token that is not known is named by its address. */
const unitText = (currency: string): string =>
  /^0x[0-9a-fA-F]{40}$/.test(currency) ? `of ${currency.slice(0, 6)}…${currency.slice(-4)}` : currency.slice(0, 12)

export function Money({ amount, currency, of, size }: Given) {
  const exact = [amount, of && `of ${of}`, currency].filter(Boolean).join(" ")
  return (
    <span className={`amount ${size ?? ""}`} title={exact}>
      <b>{amountText(amount)}</b>
      {of !== undefined && <span className="unit">of {amountText(of)}</span>}
      {currency !== undefined && <span className="unit">{unitText(currency)}</span>}
    </span>
  )
}
