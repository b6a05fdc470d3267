/** One subscription: until when it is paid, its invoices, and pausing, moving and canceling it. */
import { Button, NativeSelect } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { useParams } from "@tanstack/react-router"
import { useState } from "react"
import { read } from "../api/client.ts"
import { networkTitle } from "../api/facts.ts"
import { retries, useLive } from "../api/live.ts"
import { useRight } from "../api/me.ts"
import type { Invoice, Page, Product, SubscriptionWithInvoices } from "../api/types.ts"
import { Id } from "../ui/copy.tsx"
import { DataTable } from "../ui/data-table.tsx"
import { RequestForm } from "../ui/form.tsx"
import { Linked } from "../ui/linked.tsx"
import { More } from "../ui/more.tsx"
import { NotYet, PartNotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { ProductLink, rhythmOf } from "../ui/product-name.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Day, Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { wholeList } from "../ui/whole-list.ts"
import { invoiceColumns } from "./subscriptions.tsx"

const up = { to: "/subscriptions", name: "Subscriptions" }
const blockWords: Record<string, string> = {
  payments_paused: "Payments are paused on this network, so no invoice is created.",
  payout_address: "No invoice is created until you set where your money goes on this network.",
  price: "The product's price is too low for its split, so no invoice is created.",
}

/** What the state means, in a sentence. */
function whyOf(each: SubscriptionWithInvoices): string {
  if (each.blockedBy) return blockWords[each.blockedBy] ?? each.blockedBy
  if (each.status === "canceled")
    return each.cancelReason === "unpaid"
      ? "It ended because nobody paid its invoice."
      : each.cancelReason === "completed"
        ? "It ended because its last period is over."
        : "It was canceled."
  if (each.status === "paused") return "It is paused: no invoice is created until you resume it."
  if (each.cancelAtPeriodEnd)
    return `It ends when the paid period ends, as ${each.cancelAskedBy === "merchant" ? "you" : "its subscriber"} asked.`
  if (each.status === "past_due") return "Its invoice was not paid in time. Access is closed until the invoice is paid."
  if (each.status === "payment_due") return "Its invoice is due. Access continues during the grace period."
  return "It is paid. The next invoice is created three days before this period ends."
}

const DAY_MS = 86_400_000

/** Whether access goes on after the paid period for the days of grace alone. */
const hasGrace = ({ graceDays, paidUntil, accessUntil }: SubscriptionWithInvoices): boolean =>
  graceDays > 0 && Date.parse(accessUntil) - Date.parse(paidUntil) === graceDays * DAY_MS

export function OneSubscription() {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `/api/console/subscriptions/${id}`
  const query = useLive(["subscription", id], signal => read<SubscriptionWithInvoices>(path, {}, signal), {
    every: 10_000,
  })
  const subscription = query.data
  if (!subscription) return <NotYet query={query} up={up} />
  const { status, customerEmail, payer, chain } = subscription
  const tone = { active: "good", past_due: "bad", canceled: "off", paused: "off", payment_due: "wait" } as const
  return (
    <>
      <PageHead
        of={query}
        title={customerEmail ?? id}
        up={up}
        request={{ path }}
        head={
          <>
            <span className="figure">
              {subscription.invoices[0]
                ? `${subscription.invoices[0].amount} ${subscription.invoices[0].currency} ${rhythmOf(subscription)}`
                : rhythmOf(subscription)}
            </span>
            <Status state={status} why={subscription.cancelReason} />
          </>
        }
        actions={<Actions subscription={subscription} path={path} />}
      />
      <div className={`note ${tone[status]}`} role="status" style={{ marginBottom: 16 }}>
        <div className="strong">{whyOf(subscription)}</div>
      </div>
      <div className="two">
        <section className="card" aria-label="Invoices">
          <div className="pad head">
            <h2>Invoices</h2>
          </div>
          <DataTable
            name="invoices"
            columns={invoiceColumns}
            list={wholeList<Invoice>({ ...query, data: subscription.invoices } as never)}
            to={({ id }) => `/invoices/${id}`}
            empty={<p>No invoice has been created yet.</p>}
          />
        </section>
        <div className="stack">
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                customerEmail && ["E-mail", customerEmail],
                ["Payer", <Linked key="p" chain={chain} kind="address" value={payer} />],
                ["Product", <ProductLink key="o" id={subscription.productId} />],
                ["Paid until", <Day key="u" at={subscription.paidUntil} />],
                [
                  "Access until",
                  <>
                    <Day at={subscription.accessUntil} />
                    {hasGrace(subscription) && ` (${subscription.graceDays} grace days)`}
                  </>,
                ],
                subscription.maxPeriods !== null && ["Most periods", String(subscription.maxPeriods)],
                ["Network", networkTitle(chain)],
                ["Since", <Time key="s" at={subscription.startedAt} />],
                ["Id", <Id key="i" value={id} />],
              ]}
            />
          </section>
          {status !== "canceled" && <Move subscription={subscription} path={path} />}
        </div>
      </div>
    </>
  )
}

interface Given {
  subscription: SubscriptionWithInvoices
  path: string
}

function Actions({ subscription: { status, cancelAtPeriodEnd, cancelAskedBy }, path }: Given) {
  const may = useRight("payers")
  const change = useAct({})
  if (status === "canceled") return null
  if (!may) return <NoRight right="payers" />
  const post = (verb: string, body?: Record<string, unknown>) =>
    change.mutate({ method: "POST", path: `${path}/${verb}`, ...(body ? { body } : {}) })
  const ask = async (title: string, words: string, yes: string, act: () => void) => {
    if (await isSure({ title, words, yes })) act()
  }
  const canResume = status === "paused" || (cancelAtPeriodEnd && cancelAskedBy === "merchant")
  return (
    <>
      {canResume ? (
        <Button variant="filled" loading={change.isPending} onClick={() => post("resume")}>
          {status === "paused" ? "Resume" : "Keep it"}
        </Button>
      ) : (
        !cancelAtPeriodEnd && (
          <Button
            loading={change.isPending}
            onClick={() =>
              ask("Pause it?", "No invoice is created until you resume it. Paid access stays open.", "Pause", () =>
                post("pause"),
              )
            }
          >
            Pause
          </Button>
        )
      )}
      <More
        items={[
          {
            name: "Cancel at the end of the paid period",
            act: () =>
              ask(
                "Cancel it at the end of the paid period?",
                "Access continues until then. You can undo this.",
                "Cancel it",
                () => post("cancel", { at: "period_end" }),
              ),
          },
          {
            name: "Cancel now",
            isBad: true,
            act: () =>
              ask(
                "Cancel it now?",
                "Access ends immediately, and the subscription can't be resumed. Nothing is refunded.",
                "Cancel now",
                () => post("cancel", { at: "now" }),
              ),
          },
        ]}
      />
    </>
  )
}

function Move({ subscription, path }: Given) {
  const [isOpen, setOpen] = useState(false)
  const products = useQuery({
    queryKey: ["products", "choices"],
    queryFn: ({ signal }) => read<Page<Product>>("/api/console/products", { limit: 100, active: true }, signal),
    enabled: isOpen,
    ...retries,
  })
  const others = (products.data?.data ?? []).filter(
    each => each.billingInterval !== null && each.id !== subscription.productId && each.chain === subscription.chain,
  )
  return (
    <section className="card pad stack tight" aria-label="Move it">
      <h2>Move to another product</h2>
      <p className="quiet">From the next invoice on.</p>
      {!isOpen && (
        <div className="row">
          <Button size="xs" onClick={() => setOpen(true)}>
            Choose a product
          </Button>
        </div>
      )}
      {isOpen && !products.data && <PartNotYet query={products} />}
      {isOpen && products.data && others.length === 0 && <p className="second">No other product is paid by period.</p>}
      {isOpen && others.length > 0 && (
        <RequestForm
          first={{ productId: others[0]?.id ?? "" }}
          right="payers"
          submit="Move it"
          done="The move applies from the next invoice on"
          onCancel={() => setOpen(false)}
          request={({ productId }) => ({ method: "PUT", path, body: { productId } })}
          fields={form => (
            <NativeSelect
              label="Product"
              data={others.map(({ id, name, price, currency }) => ({
                value: id,
                label: `${name}, ${price} ${currency}`,
              }))}
              {...form.getInputProps("productId")}
            />
          )}
        />
      )}
    </section>
  )
}
