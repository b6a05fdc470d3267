/** A checkout made by hand: an amount and what it is for. */
import { NativeSelect, TextInput } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"
import { facts } from "../api/facts.ts"
import type { Checkout } from "../api/types.ts"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { AmountInput, NetworkInput } from "../ui/inputs.tsx"
import { PageHead } from "../ui/page.tsx"
import { SplitInput } from "../ui/split-input.tsx"

const HOUR_S = 3_600
const lasting = [
  { value: String(HOUR_S), label: "1 hour" },
  { value: String(24 * HOUR_S), label: "1 day" },
  { value: String(7 * 24 * HOUR_S), label: "7 days" },
  { value: String(30 * 24 * HOUR_S), label: "30 days" },
]

const captures = [
  { value: "direct", label: "is yours once it is paid" },
  { value: "manual", label: "is reserved first" },
]

const first = {
  capture: "direct",
  splitId: "",
  amount: "",
  description: "",
  chain: facts.networks[0]?.network ?? "",
  customerEmail: "",
  redirectUrl: "",
  reference: "",
  expiresIn: String(24 * HOUR_S),
}

export function NewCheckout() {
  const navigate = useNavigate()
  return (
    <div style={{ maxWidth: 640 }}>
      <PageHead title="Create checkout" up={{ to: "/checkouts", name: "Checkouts" }} />
      <section className="card pad">
        <RequestForm<typeof first, Checkout>
          first={first}
          right="catalog"
          submit="Create checkout"
          done="The checkout is ready to be paid"
          cancel="/checkouts"
          onDone={({ id }) => void navigate({ to: "/checkouts/$id", params: { id } })}
          request={values => ({
            method: "POST",
            path: "/api/console/checkouts",
            body: bodyOf({
              amount: given(values.amount)?.replace(",", "."),
              description: given(values.description),
              chain: given(values.chain),
              splitId: given(values.splitId),
              capture: values.capture === "direct" ? undefined : values.capture,
              customerEmail: given(values.customerEmail),
              redirectUrl: given(values.redirectUrl),
              metadata: given(values.reference) === undefined ? undefined : { order: given(values.reference) },
              expiresIn: Number(values.expiresIn),
            }),
          })}
          fields={form => (
            <>
              <AmountInput label="Amount" chain={form.values.chain} autoFocus {...form.getInputProps("amount")} />
              <TextInput
                label="What it is for"
                description="The payer sees it"
                placeholder="Order 1001"
                {...form.getInputProps("description")}
              />
              <div className="pair">
                <NetworkInput {...form.getInputProps("chain")} />
                <NativeSelect label="Can be paid for" data={lasting} {...form.getInputProps("expiresIn")} />
              </div>
              <div className="pair">
                <TextInput
                  label="Your order number"
                  description="Only you see it; the search finds it"
                  {...form.getInputProps("reference")}
                />
                <TextInput label="The payer's e-mail" description="Optional" {...form.getInputProps("customerEmail")} />
              </div>
              <div className="pair">
                <NativeSelect
                  label="The money"
                  description="Reserved money is captured or released by you later"
                  data={captures}
                  {...form.getInputProps("capture")}
                />
                <SplitInput {...form.getInputProps("splitId")} />
              </div>
              <TextInput
                label="Where the payer goes afterwards"
                description="Optional"
                placeholder="https://"
                {...form.getInputProps("redirectUrl")}
              />
            </>
          )}
        />
      </section>
    </div>
  )
}
