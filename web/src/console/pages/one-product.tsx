/** One product, new or to be changed. */
import { Button, NativeSelect, Textarea, TextInput } from "@mantine/core"
import { Link, useNavigate } from "@tanstack/react-router"

import { facts, networkTitle } from "../api/facts.ts"

import type { Product } from "../api/types.ts"
import { CatalogPage } from "../ui/catalog-page.tsx"
import { Id } from "../ui/copy.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { AmountInput, NetworkInput } from "../ui/inputs.tsx"
import { IdLink } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { rhythmOf } from "../ui/product-name.tsx"
import { SplitInput } from "../ui/split-input.tsx"
import { Time } from "../ui/time.tsx"
import { useThing } from "../ui/use-thing.ts"

const up = { to: "/products", name: "Products" }
const rhythms = [
  { value: "", label: "Once" },
  { value: "day", label: "Every day" },
  { value: "week", label: "Every week" },
  { value: "month", label: "Every month" },
  { value: "year", label: "Every year" },
]
const first = {
  splitId: "",
  name: "",
  price: "",
  description: "",
  chain: facts.networks[0]?.network ?? "",
  billingInterval: "",
  billingCount: "1",
  trialDays: "",
  maxPeriods: "",
}
const counts = Array.from({ length: 12 }, (_, i) => String(i + 1))

interface ProductForm {
  // biome-ignore lint/suspicious/noExplicitAny: it is what Mantine's form gives to an input.
  getInputProps: (name: any) => any
}

/** What only a subscription has. */
const SubscriptionFields = ({ form }: { form: ProductForm }) => (
  <div className="pair">
    <TextInput
      label="Trial, in days"
      inputMode="numeric"
      placeholder="none"
      description="Free, once for each wallet"
      {...form.getInputProps("trialDays")}
    />
    <TextInput
      label="Number of periods until it ends"
      inputMode="numeric"
      placeholder="continues until it is canceled"
      description="Such as 3 for an installment plan"
      {...form.getInputProps("maxPeriods")}
    />
  </div>
)

export function NewProduct() {
  const navigate = useNavigate()
  return (
    <div style={{ maxWidth: 640 }}>
      <PageHead title="Create product" up={up} />
      <section className="card pad">
        <RequestForm<typeof first, Product>
          first={first}
          right="catalog"
          submit="Create product"
          done="The product is ready"
          cancel="/products"
          onDone={({ id }) => void navigate({ to: "/products/$id", params: { id } })}
          request={values => ({
            method: "POST",
            path: "/api/console/products",
            body: bodyOf({
              name: values.name.trim(),
              price: values.price.trim().replace(",", "."),
              description: given(values.description),
              chain: given(values.chain),
              splitId: given(values.splitId),
              billingInterval: given(values.billingInterval),
              ...(values.billingInterval === ""
                ? {}
                : {
                    billingCount: Number(values.billingCount),
                    trialDays: given(values.trialDays) && Number(values.trialDays),
                    maxPeriods: given(values.maxPeriods) && Number(values.maxPeriods),
                  }),
            }),
          })}
          fields={form => (
            <>
              <TextInput label="Name" autoFocus {...form.getInputProps("name")} />
              <AmountInput label="Price" chain={form.values.chain} {...form.getInputProps("price")} />
              <Textarea label="Description" description="Optional" rows={3} {...form.getInputProps("description")} />
              <div className="pair">
                <NativeSelect label="Paid" data={rhythms} {...form.getInputProps("billingInterval")} />
                {form.values.billingInterval !== "" && (
                  <NativeSelect
                    label={`A period has so many ${form.values.billingInterval}s`}
                    data={counts}
                    {...form.getInputProps("billingCount")}
                  />
                )}
              </div>
              {form.values.billingInterval !== "" && <SubscriptionFields form={form} />}
              <NetworkInput {...form.getInputProps("chain")} />
              <SplitInput {...form.getInputProps("splitId")} />
            </>
          )}
        />
      </section>
    </div>
  )
}

export function OneProduct() {
  const { path, query } = useThing<Product>("product", "/api/console/products")
  return (
    <CatalogPage
      query={query}
      up={up}
      path={path}
      nameOf={({ name }) => name}
      priceOf={product => (
        <>
          <Money amount={product.price} currency={product.currency} /> {rhythmOf(product)}
        </>
      )}
      offWords="It can't be bought then."
      more={({ id, active }) => (
        <>
          <Button component={Link} to="/payments" search={{ productId: id } as never}>
            Its payments
          </Button>
          {active && (
            <Button variant="filled" component={Link} to="/links/new" search={{ product: id } as never}>
              Sell by a link
            </Button>
          )}
        </>
      )}
      form={product => (
        <RequestForm
          key={product.updatedAt}
          first={{
            name: product.name,
            price: product.price,
            description: product.description ?? "",
            trialDays: product.trialDays === 0 ? "" : String(product.trialDays),
            maxPeriods: String(product.maxPeriods ?? ""),
          }}
          right="catalog"
          submit="Save"
          done="Saved"
          request={values => ({
            method: "PUT",
            path,
            body: {
              name: values.name.trim(),
              price: values.price.trim().replace(",", "."),
              description: given(values.description) ?? null,
              ...(product.billingInterval === null
                ? {}
                : {
                    trialDays: Number(given(values.trialDays) ?? 0),
                    maxPeriods: given(values.maxPeriods) === undefined ? null : Number(values.maxPeriods),
                  }),
            },
          })}
          fields={form => (
            <>
              <TextInput label="Name" {...form.getInputProps("name")} />
              <AmountInput
                label="Price"
                description="Existing checkouts keep their price"
                chain={product.chain}
                {...form.getInputProps("price")}
              />
              <Textarea label="Description" rows={3} {...form.getInputProps("description")} />
              {product.billingInterval !== null && <SubscriptionFields form={form} />}
            </>
          )}
        />
      )}
      rail={product => (
        <section className="card pad" aria-label="Facts">
          <Facts
            of={[
              ["Paid", rhythmOf(product)],
              product.trialDays > 0 && ["Trial", `${product.trialDays} days`],
              product.maxPeriods !== null && ["Ends after", `${product.maxPeriods} periods`],
              ["Network", networkTitle(product.chain)],
              product.splitId && ["Split", <IdLink key="s" to="/splits" id={product.splitId} />],
              ["Created", <Time key="c" at={product.createdAt} />],
              ["Id", <Id key="i" value={product.id} />],
            ]}
          />
        </section>
      )}
    />
  )
}
