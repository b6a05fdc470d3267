/** One API behind a price, new or to be changed: its routes and prices, and the calls that its origin failed. */
import { Button, Checkbox, NativeSelect, Textarea, TextInput } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { facts, networkTitle } from "../api/facts.ts"
import type { Bundle, BundleFailure } from "../api/types.ts"
import { CatalogPage } from "../ui/catalog-page.tsx"
import { copyText, Id } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { DataTable } from "../ui/data-table.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { NetworkInput } from "../ui/inputs.tsx"
import { IdLink } from "../ui/linked.tsx"
import { MoreFields } from "../ui/more-fields.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { SplitInput } from "../ui/split-input.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useThing } from "../ui/use-thing.ts"

const up = { to: "/bundles", name: "APIs" }
const base = "/api/console/bundles"
const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]

interface Route {
  method: string
  path: string
  price: string
  description: string
}

const emptyRoute: Route = { method: "GET", path: "", price: "", description: "" }

/** The routes as the API takes them; a row without a path is none. */
const routesOf = (routes: Route[]) =>
  routes
    .filter(({ path }) => path.trim() !== "")
    .map(({ method, path, price, description }) => ({
      method,
      path: path.trim(),
      price: price.trim().replace(",", ".") || "0",
      description: given(description) ?? null,
    }))

function RoutesInput({ value, onChange }: { value: Route[]; onChange: (routes: Route[]) => void }) {
  const symbol = facts.networks[0]?.token.symbol
  const set = (i: number, more: Partial<Route>) =>
    onChange(value.map((each, at) => (at === i ? { ...each, ...more } : each)))
  return (
    <fieldset className="split">
      <legend className="legend">Routes and their prices</legend>
      {value.map((each, i) => (
        <div key={i} className="route-row">
          <NativeSelect
            aria-label={`Method of route ${i + 1}`}
            data={methods}
            value={each.method}
            onChange={event => set(i, { method: event.currentTarget.value })}
          />
          <TextInput
            aria-label={`Path of route ${i + 1}`}
            placeholder="/forecast"
            classNames={{ input: "mono" }}
            value={each.path}
            onChange={event => set(i, { path: event.currentTarget.value })}
          />
          <TextInput
            aria-label={`Price of route ${i + 1}`}
            placeholder="0.02"
            inputMode="decimal"
            classNames={{ input: "num strong" }}
            rightSectionWidth={56}
            rightSection={<span className="quiet">{symbol}</span>}
            value={each.price}
            onChange={event => set(i, { price: event.currentTarget.value })}
          />
          <button
            type="button"
            className="remove"
            aria-label={`Remove route ${i + 1}`}
            disabled={value.length < 2}
            onClick={() => onChange(value.filter((_, at) => at !== i))}
          >
            ✕
          </button>
        </div>
      ))}
      <div className="row">
        <Button size="xs" onClick={() => onChange([...value, emptyRoute])}>
          Add a route
        </Button>
        <span className="quiet">A price of 0 opens the route to everybody.</span>
      </div>
    </fieldset>
  )
}

/** `Name: value`, one a line, as the API takes it: a name without a value takes the header away. A string says what is wrong. */
function headersOf(text: string): Record<string, string | null> | string {
  const lines = text.split("\n").filter(line => line.trim() !== "")
  const wrong = lines.find(line => !/^[\w-]+\s*:/.test(line.trim()))
  if (wrong) return `“${wrong.trim().slice(0, 40)}” is not a header: enter a name, a colon and the value.`
  return Object.fromEntries(
    lines.map(line => {
      const [name = "", ...rest] = line.split(":")
      return [name.trim(), rest.join(":").trim() || null]
    }),
  )
}

const more = ["originHeaders", "openapiUrl", "listed"] as const

interface BundleForm {
  errors: Record<string, ReactNode>
  // biome-ignore lint/suspicious/noExplicitAny: it is what Mantine's form gives to an input.
  getInputProps: (name: any, options?: { type: "checkbox" }) => any
}

/** What only some APIs need; `known` are the names of the headers that it has. */
const MoreOfApi = ({ form, known = [] }: { form: BundleForm; known?: string[] }) => (
  <MoreFields errors={form.errors} of={more}>
    <Textarea
      label="Secret headers for your server"
      description={
        known.length > 0
          ? `It has ${known.join(", ")}. Headers that you enter are added or replaced; a name without a value removes that header.`
          : "One per line. They are encrypted, and never shown again"
      }
      placeholder="Authorization: Bearer …"
      rows={2}
      classNames={{ input: "mono" }}
      {...form.getInputProps("originHeaders")}
    />
    <TextInput
      label="Address of its OpenAPI document"
      description="Agents read there how to call the API"
      placeholder="https://api.example/openapi.json"
      {...form.getInputProps("openapiUrl")}
    />
    <Checkbox
      label="List it for agents, where they look for what they can buy"
      {...form.getInputProps("listed", { type: "checkbox" })}
    />
  </MoreFields>
)

const first = {
  name: "",
  originUrl: "",
  description: "",
  slug: "",
  chain: facts.networks[0]?.network ?? "",
  splitId: "",
  routes: [emptyRoute],
  originHeaders: "",
  openapiUrl: "",
  listed: false,
}

export function NewBundle() {
  const navigate = useNavigate()
  return (
    <div style={{ maxWidth: 720 }}>
      <PageHead title="Sell an API" up={up} />
      <section className="card pad">
        <RequestForm<typeof first, Bundle>
          first={first}
          right="catalog"
          submit="Sell it"
          done="The API takes payments"
          cancel={up.to}
          onDone={({ id }) => void navigate({ to: "/bundles/$id", params: { id } })}
          request={values => {
            const originHeaders = headersOf(values.originHeaders)
            if (typeof originHeaders === "string") return originHeaders
            return {
              method: "POST",
              path: base,
              body: bodyOf({
                name: values.name.trim(),
                originUrl: values.originUrl.trim(),
                description: given(values.description),
                slug: given(values.slug),
                chain: given(values.chain),
                splitId: given(values.splitId),
                routes: routesOf(values.routes),
                originHeaders: Object.keys(originHeaders).length > 0 ? originHeaders : undefined,
                openapiUrl: given(values.openapiUrl),
                listed: values.listed || undefined,
              }),
            }
          }}
          fields={form => (
            <>
              <TextInput label="Name" autoFocus {...form.getInputProps("name")} />
              <TextInput
                label="Where your API is"
                description="Paid calls are forwarded to this URL; only this service should reach it"
                placeholder="https://api.example"
                {...form.getInputProps("originUrl")}
              />
              <RoutesInput
                value={form.values.routes}
                onChange={routes => form.setFieldValue("routes", routes as never)}
              />
              <Textarea
                label="Description"
                description="Agents read it before they pay"
                rows={2}
                {...form.getInputProps("description")}
              />
              <div className="pair">
                <TextInput
                  label="End of the web address"
                  description="Created for you if this is empty"
                  placeholder="weather"
                  {...form.getInputProps("slug")}
                />
                <NetworkInput {...form.getInputProps("chain")} />
              </div>
              <SplitInput {...form.getInputProps("splitId")} />
              <MoreOfApi form={form} />
            </>
          )}
        />
      </section>
    </div>
  )
}

export function OneBundle() {
  const { path, query } = useThing<Bundle>("bundle", base)
  return (
    <>
      <CatalogPage
        query={query}
        up={up}
        path={path}
        nameOf={({ name }) => name}
        offWords="Calls are refused then, and nobody can pay for one."
        form={bundle => (
          <RequestForm
            key={bundle.updatedAt}
            first={{
              name: bundle.name,
              originUrl: bundle.originUrl,
              description: bundle.description ?? "",
              routes: bundle.routes.map(each => ({ ...each, description: each.description ?? "" })) as Route[],
              originHeaders: "",
              openapiUrl: bundle.openapiUrl ?? "",
              listed: bundle.listed,
            }}
            right="catalog"
            submit="Save"
            done="Saved; calls in progress end under the old settings"
            request={values => {
              const originHeaders = headersOf(values.originHeaders)
              if (typeof originHeaders === "string") return originHeaders
              return {
                method: "PUT",
                path,
                body: {
                  name: values.name.trim(),
                  originUrl: values.originUrl.trim(),
                  description: given(values.description) ?? null,
                  routes: routesOf(values.routes),
                  openapiUrl: given(values.openapiUrl) ?? null,
                  listed: values.listed,
                  ...(Object.keys(originHeaders).length > 0 ? { originHeaders } : {}),
                },
              }
            }}
            fields={form => (
              <>
                <TextInput label="Name" {...form.getInputProps("name")} />
                <TextInput label="Where your API is" {...form.getInputProps("originUrl")} />
                <RoutesInput
                  value={form.values.routes}
                  onChange={routes => form.setFieldValue("routes", routes as never)}
                />
                <Textarea label="Description" rows={2} {...form.getInputProps("description")} />
                <MoreOfApi form={form} known={bundle.originHeaders} />
              </>
            )}
          />
        )}
        rail={bundle => (
          <>
            <section className="card pad stack tight">
              <h2>Its address</h2>
              <p className="mono" style={{ overflowWrap: "anywhere" }}>
                {bundle.url}
              </p>
              <div className="row">
                <Button size="xs" onClick={() => copyText(bundle.url, "Address")}>
                  Copy
                </Button>
              </div>
              <p className="quiet">
                A call without a payment is answered with the price (HTTP 402); an agent pays and calls again.
              </p>
            </section>
            <section className="card pad" aria-label="Facts">
              <Facts
                of={[
                  ["Routes", String(bundle.routes.length)],
                  bundle.originHeaders.length > 0 && ["Secret headers", bundle.originHeaders.join(", ")],
                  ["Network", networkTitle(bundle.chain)],
                  bundle.splitId && ["Split", <IdLink key="s" to="/splits" id={bundle.splitId} />],
                  ["Listed", bundle.listed ? "Yes" : "No"],
                  ["Created", <Time key="c" at={bundle.createdAt} />],
                  ["Id", <Id key="i" value={bundle.id} />],
                ]}
              />
            </section>
          </>
        )}
      />
      <Failures path={path} />
    </>
  )
}

type Row = BundleFailure & { id: string }

/** Calls that were paid for and got no answer: what a merchant owes somebody. */
function Failures({ path }: { path: string }) {
  const list = usePages<Row>(`${path}/failures`, {}, row => `${row.paymentId}${row.failedAt}`)
  return (
    <section className="card" aria-label="Failed calls" style={{ marginTop: 16 }}>
      <div className="pad head">
        <h2>Paid calls that failed</h2>
      </div>
      <DataTable
        name="calls"
        list={list}
        empty={<p>Every call that was paid for got its answer.</p>}
        columns={[
          {
            head: "Call",
            width: 16,
            cell: row => (
              <span className="mono">
                {row.method} {row.path}
              </span>
            ),
          },
          { head: "State", width: 8, cell: row => <Status state={row.servedAt ? "delivered" : "failed"} /> },
          { head: "Why", width: 20, wide: true, cell: row => <div className="cut second">{row.reason}</div> },
          {
            head: "Payment",
            width: 8,
            cell: row => <IdLink to="/payments" id={row.paymentId} />,
          },
          { head: "When", width: 8, right: true, cell: row => <Time at={row.failedAt} /> },
        ]}
      />
    </section>
  )
}
