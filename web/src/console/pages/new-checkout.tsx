/** A checkout made by hand: an amount and what it is for. */
import { NativeSelect, TextInput } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"
import { facts } from "../api/facts.ts"
import type { Checkout } from "../api/types.ts"
import { AmountOrProduct } from "../ui/amount-or-product.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { NetworkInput } from "../ui/inputs.tsx"
import { MoreFields } from "../ui/more-fields.tsx"
import { PageHead } from "../ui/page.tsx"
import { fieldsOf, PayerFieldsInput } from "../ui/payer-fields.tsx"
import { SplitInput } from "../ui/split-input.tsx"

const HOUR_S = 3_600
const lasting = [
  { value: String(HOUR_S), label: "1 hour" },
  { value: String(24 * HOUR_S), label: "1 day" },
  { value: String(7 * 24 * HOUR_S), label: "7 days" },
  { value: String(30 * 24 * HOUR_S), label: "30 days" },
]

const captures = [
  { value: "direct", label: "At once: it is yours when it is paid" },
  { value: "manual", label: "Later: it is reserved until you capture it" },
]

const daysOf = (days: number[]) =>
  days.map(each => ({ value: String(each), label: each === 1 ? "1 day" : `${each} days` }))
const captureDays = daysOf([1, 3, 7, 14, 30, 60, 90])
const refundDays = daysOf([30, 60, 90, 180, 365])
const more = ["redirectUrl", "payerFields", "callbackUrl"] as const

const first = {
  capture: "direct",
  splitId: "",
  amount: "",
  description: "",
  chain: facts.networks[0]?.network ?? "",
  customerEmail: "",
  redirectUrl: "",
  reference: "",
  productId: "",
  captureDays: "7",
  refundDays: "90",
  callbackUrl: "",
  payerFields: "",
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
              amount: values.productId === "" ? given(values.amount)?.replace(",", ".") : undefined,
              productId: given(values.productId),
              description: given(values.description),
              chain: given(values.chain),
              splitId: given(values.splitId),
              ...(values.capture === "direct"
                ? {}
                : {
                    capture: values.capture,
                    captureWithin: Number(values.captureDays) * 24 * HOUR_S,
                    refundWithin: Number(values.refundDays) * 24 * HOUR_S,
                  }),
              callbackUrl: given(values.callbackUrl),
              payerFields: given(values.payerFields) && fieldsOf(values.payerFields),
              customerEmail: given(values.customerEmail),
              redirectUrl: given(values.redirectUrl),
              metadata: given(values.reference) === undefined ? undefined : { order: given(values.reference) },
              expiresIn: Number(values.expiresIn),
            }),
          })}
          fields={form => (
            <>
              <AmountOrProduct form={form} autoFocus />
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
              <NativeSelect label="Capture" data={captures} {...form.getInputProps("capture")} />
              {form.values.capture === "manual" && (
                <div className="pair">
                  <NativeSelect
                    label="Capture within"
                    description="After the checkout's end; the rest then goes back"
                    data={captureDays}
                    {...form.getInputProps("captureDays")}
                  />
                  <NativeSelect
                    label="Refund possible for"
                    description="After the time to capture"
                    data={refundDays}
                    {...form.getInputProps("refundDays")}
                  />
                </div>
              )}
              <SplitInput {...form.getInputProps("splitId")} />
              <MoreFields errors={form.errors} of={more}>
                <TextInput
                  label="Where the payer goes afterwards"
                  placeholder="https://"
                  {...form.getInputProps("redirectUrl")}
                />
                <PayerFieldsInput {...form.getInputProps("payerFields")} />
                <TextInput
                  label="Where its events go"
                  description="Instead of your endpoints"
                  placeholder="https://"
                  {...form.getInputProps("callbackUrl")}
                />
              </MoreFields>
            </>
          )}
        />
      </section>
    </div>
  )
}
