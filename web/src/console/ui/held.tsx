/** What is held for the merchant in a token, by what it waits for. */

import { fromUnits, toUnits } from "../../ui/amounts.ts"
import type { Balance } from "../api/overview.ts"
import { Money } from "./money.tsx"
import { Facts } from "./page.tsx"

/** What goes to the wallet with the next payouts: all at the addresses but what waits for a decision. */
function onItsWay({ inAddresses, waiting, decimals }: Balance): string {
  const places = decimals ?? 0
  const units = toUnits(inAddresses, places) - toUnits(waiting, places)
  return units < 0n ? "0.00" : decimals === null ? `${units}` : fromUnits(units, places)
}

const isSome = (amount: string): boolean => /[1-9]/.test(amount)

export function Held({ of }: { of: Balance }) {
  const { currency, waiting, inEscrow } = of
  return (
    <Facts
      of={[
        ["In the next payouts", <Money key="o" amount={onItsWay(of)} currency={currency} />],
        isSome(waiting) && ["Waits for your decision", <Money key="w" amount={waiting} currency={currency} />],
        isSome(inEscrow) && ["Reserved by payers", <Money key="e" amount={inEscrow} currency={currency} />],
      ]}
    />
  )
}
