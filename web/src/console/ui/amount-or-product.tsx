/** What is paid: an amount, or the price of a product. */
import { AmountInput } from "./inputs.tsx"
import { ProductInput } from "./product-input.tsx"

interface Given {
  form: {
    values: { productId: string; chain: string }
    // biome-ignore lint/suspicious/noExplicitAny: it is what Mantine's form gives to an input.
    getInputProps: (name: any) => any
  }
  /** What an empty amount means. */
  empty?: string
  autoFocus?: boolean
}

/** Beside each other, as one of them is chosen; the amount alone where there is no product. */
export const AmountOrProduct = ({ form, empty, autoFocus = false }: Given) => (
  <div className="pair" style={{ alignItems: "start" }}>
    <AmountInput
      label="Amount"
      chain={form.values.chain}
      autoFocus={autoFocus}
      {...form.getInputProps("amount")}
      {...(form.values.productId === ""
        ? { description: empty }
        : { disabled: true, value: "", placeholder: "the product's price" })}
    />
    <ProductInput
      label="Or a product"
      {...(empty === undefined ? {} : { description: "Its price is the amount" })}
      none="None"
      size="lg"
      styles={{ input: { fontSize: 13 } }}
      may={each => each.chain === form.values.chain}
      {...form.getInputProps("productId")}
    />
  </div>
)
