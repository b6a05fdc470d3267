/** Describes a receipt for people. */
import type { ReceiptBody } from "./format.ts"

/** Returns several lines. `saved` is the file that contains it, with the facts that its holder shows. */
export function describe(body: ReceiptBody, saved: unknown): string {
  const digits = body.amount.padStart(body.decimals + 1, "0")
  const whole = digits.slice(0, digits.length - body.decimals)
  const amount = body.decimals === 0 ? whole : `${whole}.${digits.slice(-body.decimals)}`
  const { facts = [] } = saved as { facts?: { name: string; value: string }[] }
  return [
    `${body.type} of ${amount} of the token ${body.token} on ${body.chain}`,
    `from ${body.payer}${body.transfers.map(({ to }) => ` to ${to}`).join("")}`,
    `settled ${body.settledAt}, receipt ${body.seq} of ${body.merchant} (${body.issuer})`,
    ...facts.map(({ name, value }) => `  ${name}: ${printable(value)}`),
  ].join("\n")
}

/** Text from other people, without characters that a terminal would interpret. */
const printable = (text: string): string => text.replaceAll(/[\p{Cc}\p{Cf}]/gu, "\ufffd")
