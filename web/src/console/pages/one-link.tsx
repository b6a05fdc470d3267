/** One payment link, new or to be changed. */
import { Button, Textarea, TextInput, type TextInputProps } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { fieldTitle } from "../../ui/field-title.ts"
import { dayAt, startTime } from "../api/days.ts"
import { facts, isSandbox, networkTitle } from "../api/facts.ts"
import type { PaymentLink } from "../api/types.ts"
import { zoneNow } from "../api/zone.ts"
import { AmountOrProduct } from "../ui/amount-or-product.tsx"
import { CatalogPage } from "../ui/catalog-page.tsx"
import { Id } from "../ui/copy.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { NetworkInput } from "../ui/inputs.tsx"
import { IdLink } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { fieldsOf, fieldsText, PayerFieldsInput } from "../ui/payer-fields.tsx"
import { Share } from "../ui/share.tsx"
import { SplitInput } from "../ui/split-input.tsx"
import { Time } from "../ui/time.tsx"
import { Totals } from "../ui/totals.tsx"
import { useThing } from "../ui/use-thing.ts"

const up = { to: "/links", name: "Links" }
const first = {
  productId: "",
  splitId: "",
  title: "",
  amount: "",
  description: "",
  slug: "",
  chain: facts.networks[0]?.network ?? "",
  maxUses: "",
  redirectUrl: "",
  payerFields: "",
  expiresAt: "",
}

const EndInput = (props: TextInputProps) => (
  <TextInput type="date" label="It ends" description="As this day begins. Empty: it doesn't end" {...props} />
)
const endOf = (day: string): string | undefined => startTime(day, zoneNow())
const dayOf = ({ expiresAt }: PaymentLink): string => (expiresAt ? dayAt(Date.parse(expiresAt), zoneNow()) : "")

const embedOf = (url: string): string =>
  `<a data-sluice href="${url}">Pay with USDC</a>\n<script src="${facts.baseUrl}/embed.js" async></script>`

export function NewLink() {
  const navigate = useNavigate()
  // "Sell with it" of a split, "Sell by a link" of a product.
  const { split = "", product = "" } = useSearch({ strict: false }) as { split?: string; product?: string }
  return (
    <div style={{ maxWidth: 640 }}>
      <PageHead title="Create link" up={up} />
      <section className="card pad">
        <RequestForm<typeof first, PaymentLink>
          first={{ ...first, splitId: split, productId: product }}
          right="catalog"
          submit="Create link"
          done="The link takes payments"
          cancel="/links"
          onDone={({ id }) => void navigate({ to: "/links/$id", params: { id } })}
          request={values => ({
            method: "POST",
            path: "/api/console/payment-links",
            body: bodyOf({
              title: values.title.trim(),
              amount: values.productId === "" ? given(values.amount)?.replace(",", ".") : undefined,
              productId: given(values.productId),
              description: given(values.description),
              slug: given(values.slug),
              chain: given(values.chain),
              splitId: given(values.splitId),
              maxUses: given(values.maxUses) && Number(values.maxUses),
              redirectUrl: given(values.redirectUrl),
              payerFields: given(values.payerFields) && fieldsOf(values.payerFields),
              expiresAt: endOf(values.expiresAt),
            }),
          })}
          fields={form => (
            <>
              <TextInput label="Title" description="The payer sees it" autoFocus {...form.getInputProps("title")} />
              <AmountOrProduct form={form} empty="Empty: the payer chooses" />
              <Textarea label="Description" description="Optional" rows={3} {...form.getInputProps("description")} />
              <div className="pair">
                <TextInput
                  label="End of the link's web address"
                  description="Created for you if this is empty"
                  placeholder="support-us"
                  {...form.getInputProps("slug")}
                />
                <NetworkInput description="Where it is paid" {...form.getInputProps("chain")} />
              </div>
              <PayerFieldsInput {...form.getInputProps("payerFields")} />
              <SplitInput {...form.getInputProps("splitId")} />
              <div className="pair">
                <TextInput
                  label="Uses at most"
                  description="Empty: without a limit"
                  inputMode="numeric"
                  {...form.getInputProps("maxUses")}
                />
                <EndInput {...form.getInputProps("expiresAt")} />
              </div>
              <TextInput
                label="Where the payer goes afterwards"
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

export function OneLink() {
  const { path, query } = useThing<PaymentLink>("link", "/api/console/payment-links")
  return (
    <CatalogPage
      query={query}
      up={up}
      path={path}
      nameOf={({ title }) => title}
      more={({ slug }) => (
        <Button component={Link} to="/payments" search={{ slug } as never}>
          Its payments
        </Button>
      )}
      offWords="The link's page then says that it has ended."
      form={link => (
        <RequestForm
          key={link.updatedAt}
          first={{
            title: link.title,
            description: link.description ?? "",
            maxUses: link.maxUses === null ? "" : String(link.maxUses),
            redirectUrl: link.redirectUrl ?? "",
            payerFields: fieldsText(link.payerFields),
            expiresAt: dayOf(link),
          }}
          right="catalog"
          submit="Save"
          done="Saved"
          request={values => ({
            method: "PUT",
            path,
            body: {
              title: values.title.trim(),
              description: given(values.description) ?? null,
              maxUses: given(values.maxUses) === undefined ? null : Number(values.maxUses),
              redirectUrl: given(values.redirectUrl) ?? null,
              ...(values.payerFields === fieldsText(link.payerFields)
                ? {}
                : { payerFields: fieldsOf(values.payerFields) }),
              ...(values.expiresAt === dayOf(link) ? {} : { expiresAt: endOf(values.expiresAt) ?? null }),
            },
          })}
          fields={form => (
            <>
              <TextInput label="Title" {...form.getInputProps("title")} />
              <Textarea label="Description" rows={3} {...form.getInputProps("description")} />
              <PayerFieldsInput {...form.getInputProps("payerFields")} />
              <div className="pair">
                <TextInput
                  label="Uses at most"
                  description="Empty: without a limit"
                  {...form.getInputProps("maxUses")}
                />
                <EndInput {...form.getInputProps("expiresAt")} />
              </div>
              <TextInput
                label="Where the payer goes afterwards"
                placeholder="https://"
                {...form.getInputProps("redirectUrl")}
              />
              <p className="quiet">The amount and the network can't be changed, because payers may have seen them.</p>
            </>
          )}
        />
      )}
      rail={link => (
        <>
          <Share
            url={link.url}
            embed={embedOf(link.url)}
            {...(link.uses === 0 && link.active
              ? {
                  first: isSandbox
                    ? "Nobody has paid yet. Open the link as a payer: the test wallet pays with one click."
                    : "Nobody has paid yet. Send the link to payers, or open it as a payer would.",
                }
              : {})}
          />
          {link.uses > 0 && (
            <section className="card" aria-label="Payments">
              <div className="pad head">
                <h2>Payments</h2>
                <Link to="/payments" search={{ slug: link.slug } as never}>
                  See them
                </Link>
              </div>
              <Totals query={{ type: "payment", slug: link.slug }} />
            </section>
          )}
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                [
                  "Amount",
                  link.amount === null ? (
                    "the payer chooses"
                  ) : (
                    <Money key="a" amount={link.amount} currency={link.currency} />
                  ),
                ],
                ["Used", `${link.uses}${link.maxUses === null ? "" : ` of ${link.maxUses}`}`],
                ["Network", networkTitle(link.chain)],
                link.payerFields.length > 0 && ["Asks for", link.payerFields.map(fieldTitle).join(", ")],
                link.splitId && ["Split", <IdLink key="s" to="/splits" id={link.splitId} />],
                link.expiresAt && ["Ends", <Time key="e" at={link.expiresAt} />],
                ["Created", <Time key="c" at={link.createdAt} />],
                ["Id", <Id key="i" value={link.id} />],
              ]}
            />
          </section>
        </>
      )}
    />
  )
}
