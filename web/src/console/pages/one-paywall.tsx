/** One paywall, new or to be changed. */
import { NativeSelect, Textarea, TextInput } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"

import { facts, networkTitle } from "../api/facts.ts"

import type { Paywall } from "../api/types.ts"
import { CatalogPage } from "../ui/catalog-page.tsx"
import { Id } from "../ui/copy.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { AmountInput, NetworkInput } from "../ui/inputs.tsx"
import { later } from "../ui/later.tsx"
import { Money } from "../ui/money.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Share } from "../ui/share.tsx"
import { SplitInput } from "../ui/split-input.tsx"
import { Time } from "../ui/time.tsx"
import { useThing } from "../ui/use-thing.ts"
import { contentWords } from "./paywalls.tsx"

const MoreOfPaywall = later(async () => (await import("../ui/paywall-more.tsx")).default)

const up = { to: "/paywalls", name: "Paywalls" }
const DAY_S = 86_400
const durations = [
  { value: "", label: "For ever" },
  { value: String(DAY_S), label: "1 day" },
  { value: String(7 * DAY_S), label: "7 days" },
  { value: String(30 * DAY_S), label: "30 days" },
  { value: String(365 * DAY_S), label: "1 year" },
]
/** The choices, and what it is now where that is none of them. */
const durationsOf = (now: number | null) =>
  durations.some(({ value }) => value === String(now ?? ""))
    ? durations
    : [...durations, { value: String(now), label: `${now} s` }]
const first = {
  splitId: "",
  name: "",
  price: "",
  description: "",
  contentUrl: "",
  chain: facts.networks[0]?.network ?? "",
  accessDuration: "",
  pricingModel: "",
  slug: "",
  contentData: "",
  subscriptionProductId: "",
  listed: false,
}
const models = [
  { value: "", label: "Access to the content" },
  { value: "per_call", label: "One call of an API" },
]

/** The content as JSON; a string says what is wrong with it. */
function contentOf(text: string): object | null | string {
  if (text.trim() === "") return null
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value
  } catch {
    // Said below.
  }
  return 'The content is one JSON object, such as {"text":"Sun"}.'
}

const urlOf = (id: string): string => `${facts.baseUrl}/paywall/${id}`
const embedOf = (id: string): string =>
  `<a data-sluice href="${urlOf(id)}">Pay with USDC</a>\n<script src="${facts.baseUrl}/embed.js" async></script>`

export function NewPaywall() {
  const navigate = useNavigate()
  return (
    <div style={{ maxWidth: 640 }}>
      <PageHead title="Create paywall" up={up} />
      <section className="card pad">
        <RequestForm<typeof first, Paywall>
          first={first}
          right="catalog"
          submit="Create paywall"
          done="The paywall takes payments"
          cancel="/paywalls"
          onDone={({ id }) => void navigate({ to: "/paywalls/$id", params: { id } })}
          request={values => {
            const contentData = contentOf(values.contentData)
            if (typeof contentData === "string") return contentData
            return {
              method: "POST",
              path: "/api/console/paywalls",
              body: bodyOf({
                name: values.name.trim(),
                price: values.price.trim().replace(",", "."),
                description: given(values.description),
                contentUrl: given(values.contentUrl),
                chain: given(values.chain),
                splitId: given(values.splitId),
                accessDuration: values.accessDuration === "" ? undefined : Number(values.accessDuration),
                pricingModel: given(values.pricingModel),
                slug: given(values.slug),
                subscriptionProductId: given(values.subscriptionProductId),
                contentData: contentData ?? undefined,
                listed: values.listed || undefined,
              }),
            }
          }}
          fields={form => (
            <>
              <TextInput label="Name" description="The buyer sees it" autoFocus {...form.getInputProps("name")} />
              <AmountInput label="Price" chain={form.values.chain} {...form.getInputProps("price")} />
              <Textarea label="Description" description="Optional" rows={3} {...form.getInputProps("description")} />
              <TextInput
                label="Address of the content"
                description="Shown to everyone who has paid; your site asks Sluice whether someone has access"
                placeholder="https://"
                {...form.getInputProps("contentUrl")}
              />
              <div className="pair">
                <NativeSelect label="A payment buys" data={models} {...form.getInputProps("pricingModel")} />
                <NativeSelect label="Access lasts" data={durations} {...form.getInputProps("accessDuration")} />
              </div>
              <NetworkInput {...form.getInputProps("chain")} />
              <SplitInput {...form.getInputProps("splitId")} />
              <MoreOfPaywall form={form} chain={form.values.chain} />
            </>
          )}
        />
      </section>
    </div>
  )
}

export function OnePaywall() {
  const { path, query } = useThing<Paywall>("paywall", "/api/console/paywalls")
  return (
    <CatalogPage
      query={query}
      up={up}
      path={path}
      nameOf={({ name }) => name}
      priceOf={({ price, currency }) => <Money amount={price} currency={currency} />}
      offWords="Nobody can buy access then; everyone who has access keeps it."
      form={paywall => (
        <RequestForm
          key={paywall.id}
          first={{
            name: paywall.name,
            price: paywall.price,
            description: paywall.description ?? "",
            contentUrl: paywall.contentUrl ?? "",
            accessDuration: String(paywall.accessDuration ?? ""),
            subscriptionProductId: paywall.subscriptionProductId ?? "",
            splitId: paywall.splitId ?? "",
            slug: paywall.slug ?? "",
            contentData: "",
            listed: paywall.listed,
          }}
          right="catalog"
          submit="Save"
          done="Saved"
          request={values => {
            const contentData = contentOf(values.contentData)
            if (typeof contentData === "string") return contentData
            const splitId = given(values.splitId) ?? null
            return {
              method: "PUT",
              path,
              body: {
                name: values.name.trim(),
                price: values.price.trim().replace(",", "."),
                description: given(values.description) ?? null,
                contentUrl: given(values.contentUrl) ?? null,
                accessDuration: values.accessDuration === "" ? null : Number(values.accessDuration),
                subscriptionProductId: given(values.subscriptionProductId) ?? null,
                slug: given(values.slug) ?? null,
                listed: values.listed,
                // Only an owner may attach one, so it is left out where it stays.
                ...(splitId === paywall.splitId ? {} : { splitId }),
                ...(contentData ? { contentData } : {}),
              },
            }
          }}
          fields={form => (
            <>
              <TextInput label="Name" {...form.getInputProps("name")} />
              <AmountInput label="Price" chain={paywall.chain} {...form.getInputProps("price")} />
              <Textarea label="Description" rows={3} {...form.getInputProps("description")} />
              <TextInput label="Address of the content" placeholder="https://" {...form.getInputProps("contentUrl")} />
              <NativeSelect
                label="Access lasts"
                description="For payments from now on"
                data={durationsOf(paywall.accessDuration)}
                {...form.getInputProps("accessDuration")}
              />
              <SplitInput {...form.getInputProps("splitId")} />
              <MoreOfPaywall form={form} chain={paywall.chain} />
            </>
          )}
        />
      )}
      rail={paywall => (
        <>
          <Share url={urlOf(paywall.id)} embed={embedOf(paywall.id)} />
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                [
                  "Access lasts",
                  durations.find(({ value }) => value === String(paywall.accessDuration ?? ""))?.label ??
                    `${paywall.accessDuration} s`,
                ],
                ["A payment buys", paywall.pricingModel === "per_call" ? "one call" : "access to the content"],
                ["Content", contentWords[paywall.contentType] ?? paywall.contentType],
                paywall.slug && [
                  "For agents",
                  <span key="s" className="mono">
                    /api/p/{paywall.slug}
                  </span>,
                ],
                ["Network", networkTitle(paywall.chain)],
                ["Created", <Time key="c" at={paywall.createdAt} />],
                ["Id", <Id key="i" value={paywall.id} />],
              ]}
            />
          </section>
        </>
      )}
    />
  )
}
