/** Money that waits for the merchant's decision, as its payer sees it. Pure: the server and the browser both use it. */
import type { Translate } from "../i18n/words.ts"
import type { CheckoutStatus, WaitingMoney } from "../page-data.ts"
import { localAmount, short } from "../ui/amounts.ts"
import { isPayable, type Stage } from "./stage.ts"

/**
 * The money that the page offers to send back. While it asks for a payment, it offers only money that can't count
 * towards that payment: the rest of the payment may still arrive.
 */
export function waitingIn({ waiting }: CheckoutStatus, stage: Stage): readonly WaitingMoney[] {
  if (isPayable(stage)) return waiting.filter(({ isAsked }) => !isAsked)
  return stage === "paid" || stage === "expired" || stage === "failed" ? waiting : []
}

/** The name of a token: its symbol, or its shortened address if it has no symbol that can be shown. */
export const currencyShown = (currency: string): string => (currency.startsWith("0x") ? short(currency) : currency)

/** One of several sums: the amount and the sender. */
export const waitingMessage = (t: Translate, language: string, { amount, currency, payer }: WaitingMoney): string =>
  t("waitingFrom", { amount: localAmount(amount, language), symbol: currencyShown(currency), address: short(payer) })
