/** One invoice: for which period, when it is due, and where its subscriber pays it. */
import { networkTitle } from "../api/facts.ts"
import type { Invoice } from "../api/types.ts"
import { Id } from "../ui/copy.tsx"
import { IdLink } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { ProductLink } from "../ui/product-name.tsx"
import { Share } from "../ui/share.tsx"
import { Status } from "../ui/status.tsx"
import { Day, Time } from "../ui/time.tsx"
import { useThing } from "../ui/use-thing.ts"

const up = { to: "/invoices", name: "Invoices" }

export function OneInvoice() {
  const { path, query } = useThing<Invoice>("invoice", "/api/console/invoices")
  const invoice = query.data
  if (!invoice) return <NotYet query={query} up={up} />
  return (
    <>
      <PageHead
        of={query}
        title={`Invoice ${invoice.sequence}: ${invoice.amount} ${invoice.currency}`}
        up={up}
        request={{ path }}
        head={
          <>
            <Money size="money" amount={invoice.amount} currency={invoice.currency} />
            <Status state={invoice.status === "open" ? "due" : invoice.status} />
          </>
        }
      />
      <div className="halves">
        <section className="card pad" aria-label="Facts">
          <Facts
            of={[
              [
                "Period",
                <>
                  <Day at={invoice.periodStart} /> – <Day at={invoice.periodEnd} />
                </>,
              ],
              ["Due", <Time key="d" at={invoice.dueAt} />],
              invoice.paidAt && ["Paid", <Time key="p" at={invoice.paidAt} />],
              ["Subscription", <IdLink key="s" to="/subscriptions" id={invoice.subscriptionId} />],
              ["Product", <ProductLink key="o" id={invoice.productId} />],
              ["Checkout", <IdLink key="c" to="/checkouts" id={invoice.checkoutSessionId} />],
              ["Network", networkTitle(invoice.chain)],
              ["Id", <Id key="i" value={invoice.id} />],
            ]}
          />
        </section>
        <Share url={invoice.hostedUrl} title="The subscriber's page" />
      </div>
    </>
  )
}
