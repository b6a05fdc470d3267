/** The rules of a split. Pure. */
import { type Address, NOT_AN_ADDRESS, parseAddress } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { ErrorDetail } from "../../platform/errors.ts"
import { WHOLE_E4 } from "../../platform/money/allocate.ts"
import { parseAmount } from "../../platform/money/amount.ts"
import { percentOf } from "../../platform/money/percent.ts"

const MIN_RECIPIENTS = 2
const MAX_RECIPIENTS = 50

export interface Recipient {
  address: Address
  /** In ten-thousandths of a percent. */
  percentE4: number
  label: string | null
}

/** A recipient as it was received. `percent` is the text of the percentage as it was written. */
interface WrittenRecipient {
  address: string
  percent: string | undefined
  label?: string | null | undefined
}

/**
 * The recipients, or their faults. `form` is for values that are not addresses, and `faults` for recipients that form
 * no valid split.
 */
export interface ReadRecipients {
  recipients: Recipient[]
  form: ErrorDetail[]
  faults: ErrorDetail[]
}

/** Reads a split's recipients. `refusalOf` returns why money must not be sent to an address. */
export function readRecipients(
  written: readonly WrittenRecipient[],
  refusalOf: (address: Address) => string | undefined,
): ReadRecipients {
  const form: ErrorDetail[] = []
  const faults: ErrorDetail[] = []
  const recipients: Recipient[] = []
  if (written.length < MIN_RECIPIENTS || written.length > MAX_RECIPIENTS)
    faults.push({ path: "recipients", message: `must have ${MIN_RECIPIENTS} to ${MAX_RECIPIENTS} entries` })
  for (const [i, { address: text, percent, label }] of written.entries()) {
    const at = (field: string) => `recipients.${i}.${field}`
    const address = parseAddress(text)
    const percentE4 = parsePercent(percent ?? "")
    if (!address)
      form.push({
        path: at("address"),
        message: NOT_AN_ADDRESS,
      })
    const refusal = address && refusalOf(address)
    if (refusal) faults.push({ path: at("address"), message: refusal })
    if (address && recipients.some(each => each.address === address))
      faults.push({ path: at("address"), message: "appears twice: combine its percentages in one entry" })
    if (percentE4 === undefined)
      faults.push({ path: at("percent"), message: "must be above 0 and at most 100, with at most 4 decimals" })
    if (address) recipients.push({ address, percentE4: percentE4 ?? 0, label: label ?? null })
  }
  const sum = recipients.reduce((total, { percentE4 }) => total + percentE4, 0)
  if (form.length === 0 && faults.length === 0 && sum !== WHOLE_E4)
    faults.push({ path: "recipients", message: `must add up to exactly 100 percent; they add up to ${percentOf(sum)}` })
  return { recipients, form, faults }
}

/**
 * Parses a percentage as it was written, in ten-thousandths. Returns undefined if it is not a percentage, is zero, or
 * has too many decimals.
 */
function parsePercent(text: string): number | undefined {
  const match = /^(\d{1,3})(?:\.(\d{1,4}))?$/.exec(text)
  if (!match) return undefined
  const percentE4 = Number.parseInt(`${match[1]}${(match[2] ?? "").padEnd(4, "0")}`, 10)
  return percentE4 > 0 && percentE4 <= WHOLE_E4 ? percentE4 : undefined
}

/**
 * Whether an amount is too low for this many recipients. The service pays for the transfer of each part, so the lowest
 * allowed price, `least` whole tokens, grows with the number of recipients.
 */
export const isTooLow = (least: string, { token }: NetworkInfo, amount: bigint, recipients: number): boolean =>
  amount < parseAmount(least, token.decimals) * BigInt(recipients)

/** Returns the faults of dividing an amount by a split; none if the amount is open or not divided. */
export function partsFaults(
  least: string,
  network: NetworkInfo,
  amount: bigint | null,
  split: { size: number } | undefined,
): ErrorDetail[] {
  if (!split || amount === null || !isTooLow(least, network, amount, split.size)) return []
  const message = `names a split with too many recipients for this amount: each must get at least ${least}`
  return [{ path: "splitId", message }]
}
