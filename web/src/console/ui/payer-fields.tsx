/** What a payer is asked for before paying: typed as words, sent as names of fields. */
import { TextInput, type TextInputProps } from "@mantine/core"

/**
 * The names of the fields in a text that separates them with commas. Spaces and hyphens become underscores, which the
 * payer's page shows as spaces.
 *
 * @example fieldsOf("Name, E-mail, Shipping address") // ["Name", "email", "Shipping_address"]
 */
export function fieldsOf(text: string): string[] {
  const names = text
    .split(/[,;\n]/)
    .map(each => each.trim().replace(/[\s-]+/g, "_"))
    .filter(Boolean)
    .map(name => (/^e_?mail$/i.test(name) ? "email" : name))
  return names.filter((name, i) => names.findIndex(each => each.toLowerCase() === name.toLowerCase()) === i)
}

/** The names of fields as the input shows them; `fieldsOf` reads them back. */
export const fieldsText = (names: readonly string[]): string => names.map(name => name.replace(/_/g, " ")).join(", ")

export const PayerFieldsInput = (props: TextInputProps) => (
  <TextInput
    label="What the payer is asked for"
    description="Before paying, separated by commas. You see the answers with the payment"
    placeholder="Name, E-mail, Shipping address"
    {...props}
  />
)
