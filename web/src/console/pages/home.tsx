/** Home: what came in, what needs you, what is there, and the last payments. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { GET, taken } from "../api/client.ts"
import { facts, isSandbox, networkTitle } from "../api/facts.ts"
import { failureOf } from "../api/failure.ts"
import {
  type AttentionKind,
  changeOf,
  type Figures,
  figureOf,
  isSame,
  type Overview,
  type Token,
  useOverview,
} from "../api/overview.ts"
import type { Page, Transaction } from "../api/types.ts"
import { Chips } from "../ui/chips.tsx"
import { DataTable } from "../ui/data-table.tsx"
import { Held } from "../ui/held.tsx"
import { later } from "../ui/later.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { Problem, RequestId } from "../ui/problem.tsx"
import { clockText } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"
import { moneyColumns, toPayment } from "./payments.tsx"

const Chart = later(async () => (await import("../ui/chart.tsx")).default, <div style={{ height: 240 }} />)

export interface HomeSearch {
  days?: number
  token?: string
}

const spans = [
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
] as const

export function Home() {
  const { days = 30, token } = useSearch({ strict: false }) as HomeSearch
  const navigate = useNavigate()
  const set = (next: HomeSearch) => void navigate({ to: "/", search: next as never, replace: true })
  const overview = useOverview(days)
  const last = useList<Transaction>(
    ["transactions", "last"],
    (_part, signal) =>
      taken(GET("/api/console/transactions", { params: { query: { type: "payment", limit: 10 } }, signal })) as Promise<
        Page<Transaction>
      >,
  )
  const { data, error } = overview
  const tokens = data ? tokensOf(data) : []
  const chosen = tokens.find(each => `${each.chain} ${each.currency}` === token) ?? tokens[0] ?? settlementToken
  return (
    <>
      <PageHead
        title="Home"
        actions={
          <>
            <Chips
              name="Time"
              choices={spans as never}
              value={days as never}
              set={each => set({ ...(token ? { token } : {}), ...(each ? { days: each as never } : {}) })}
            />
            <Button variant="filled" component={Link} to="/checkouts/new">
              Create checkout
            </Button>
          </>
        }
      />
      <div className="stack">
        {data && data.checklist.length > 0 && <FirstSteps steps={data.checklist} />}
        {error && data && <Behind error={error} asOf={overview.dataUpdatedAt} />}
        {tokens.length > 1 && (
          <Chips
            name="Token"
            choices={tokens.map(each => [
              `${each.chain} ${each.currency}`,
              `${each.currency} on ${networkTitle(each.chain)}`,
            ])}
            value={chosen && `${chosen.chain} ${chosen.currency}`}
            set={each => set({ ...(days === 30 ? {} : { days }), ...(each ? { token: each } : {}) })}
          />
        )}
        <div className="two">
          <section className="card pad" aria-label="Received">
            {data && chosen ? (
              <Received overview={data} token={chosen} days={days} />
            ) : (
              <ReceivedLater error={error} retry={() => void overview.refetch()} />
            )}
          </section>
          <div className="stack">
            <section className="card" aria-label="Needs you">
              <div className="pad head">
                <h2>Needs you</h2>
              </div>
              {data ? <Attention of={data.attention} /> : <NotThere error={error} />}
            </section>
            <section className="card" aria-label="Not in your wallet yet">
              <div className="pad head">
                <h2>Not in your wallet yet</h2>
              </div>
              {data && chosen ? <HeldNow overview={data} token={chosen} /> : <NotThere error={error} />}
            </section>
          </div>
        </div>
        <section className="card" aria-label="Last payments">
          <div className="pad head">
            <h2>Last payments</h2>
            <Link to="/payments">All payments</Link>
          </div>
          <DataTable
            name="last payments"
            isPart
            columns={moneyColumns.filter(({ head }) => head !== "Transaction")}
            list={{ ...last, more: undefined, total: last.rows?.length ?? 0 }}
            to={toPayment}
            empty={
              <>
                <h2>No payments yet</h2>
                <p>
                  {isSandbox
                    ? "Create a checkout, open it as a payer, and pay it with the test wallet: it appears here a second later."
                    : "Create a checkout and pay it: it appears here a second after its transfer is in a block."}
                </p>
                <Button variant="filled" component={Link} to="/checkouts/new">
                  Create the first checkout
                </Button>
              </>
            }
          />
        </section>
      </div>
    </>
  )
}

/** What the figures are of before anything came in. */
const [network] = facts.networks
const settlementToken: Token | undefined = network && {
  chain: network.network,
  token: network.token.address,
  currency: network.token.symbol,
  decimals: network.token.decimals,
}

/** The tokens with figures, that with the most first. */
function tokensOf({ totals, balances }: Overview): Token[] {
  const all: Token[] = [...totals.toSorted((a, b) => Number(b.received) - Number(a.received)), ...balances]
  return all.filter((token, i) => all.findIndex(each => isSame(each, token)) === i)
}

const percent = (part: number | null): string => (part === null ? "–" : `${(part * 100).toFixed(1)} %`)

function durationText(seconds: number | null): string {
  if (seconds === null) return "–"
  if (seconds < 100) return `${seconds} s`
  return seconds < 6_000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`
}

function Received({ overview, token, days }: { overview: Overview; token: Token; days: number }) {
  const now: Figures = figureOf(overview.totals, token)
  const before = figureOf(overview.previous.totals, token)
  const change = changeOf(now.net, before.net)
  const { paid, checkouts, successRate, medianSecondsToPaid } = overview.funnel
  // The periods before have no series of their own: their total is drawn as its daily mean.
  const mean = (Number(before.net) / Math.max(1, overview.series.length)).toFixed(2)
  const points = overview.series.map(({ at, figures, paid }) => ({
    at,
    paid,
    amount: figureOf(figures, token).net,
    before: mean,
  }))
  return (
    <div className="stack">
      <div className="row between" style={{ alignItems: "flex-start", gap: 16 }}>
        <div>
          <div className="label" title="Paid, reserved or waiting for your decision, less what went back">
            Received, last {days} days
          </div>
          <Money size="total" amount={now.net} currency={token.currency} />
          <div className="second num">
            {change === null ? `Nothing in the ${days} days before` : `${change} against the ${days} days before`}
          </div>
        </div>
        <div className="row" style={{ gap: 32, alignItems: "flex-start" }}>
          <Stat
            label="Checkouts paid"
            value={percent(successRate)}
            more={`${paid.toLocaleString()} of ${checkouts.toLocaleString()}`}
          />
          <Stat
            label="Time to paid"
            value={durationText(medianSecondsToPaid)}
            more={paid > 1 ? "half were faster" : paid === 1 ? "of one payment" : "none paid yet"}
          />
        </div>
      </div>
      <Chart points={points} currency={token.currency} />
    </div>
  )
}

function Stat({ label, value, more }: { label: string; value: string; more: string }) {
  return (
    <div>
      <div className="label">{label}</div>
      <div className="figure">{value}</div>
      <div className="quiet num">{more}</div>
    </div>
  )
}

function ReceivedLater({ error, retry }: { error: unknown; retry: () => void }) {
  if (error) return <Problem error={error} retry={retry} />
  return (
    <div className="stack late" role="status" aria-label="Loading the figures">
      <span className="bone" style={{ width: 80 }} />
      <span className="bone" style={{ width: 220, height: 36 }} />
      <span className="bone" style={{ width: "100%", height: 180 }} />
    </div>
  )
}

/** In place of a card whose figures come with the others: why they did not is said once, beside it. */
const NotThere = ({ error }: { error: unknown }) =>
  error ? (
    <p className="quiet pad rule">Not loaded.</p>
  ) : (
    <div className="pad stack tight late">
      <span className="bone" style={{ width: "60%" }} />
      <span className="bone" style={{ width: "40%" }} />
    </div>
  )

function Behind({ error, asOf }: { error: unknown; asOf: number }) {
  const { code, message, requestId } = failureOf(error)
  if (code === "RATE_LIMITED") return null
  return (
    <div className="strip wait" role="status">
      <span>
        The figures are as of {clockText(asOf)}. {message}
      </span>
      {requestId && <RequestId id={requestId} />}
    </div>
  )
}

const waitingWords: Record<AttentionKind, [string, string, string]> = {
  payments: ["/needs-you", "payment to decide", "payments to decide"],
  surpluses: ["/needs-you", "overpaid payment to decide", "overpaid payments to decide"],
  refunds: ["/payments?type=refund", "refund on hold", "refunds on hold"],
  payouts: ["/payouts?state=held", "payout on hold", "payouts on hold"],
  webhooks: ["/webhooks", "endpoint failing", "endpoints failing"],
  payoutAddresses: ["/payout-address", "payout address changes soon", "payout addresses change soon"],
  subscriptions: ["/subscriptions?status=past_due", "subscription past due", "subscriptions past due"],
}

function Attention({ of }: { of: Overview["attention"] }) {
  const waiting = (Object.keys(waitingWords) as AttentionKind[]).filter(kind => (of[kind]?.count ?? 0) > 0)
  if (waiting.length === 0) return <p className="quiet pad rule">Nothing is waiting for you.</p>
  return waiting.map(kind => {
    const [place, one, many] = waitingWords[kind]
    const { count } = of[kind]
    const [to = "/", query] = place.split("?")
    return (
      <Link key={kind} to={to} search={Object.fromEntries(new URLSearchParams(query)) as never} className="todo">
        <span className="figure" style={{ minWidth: "1.5ch" }}>
          {count}
        </span>
        <span>{count === 1 ? one : many}</span>
        <span className="go">See</span>
      </Link>
    )
  })
}

function HeldNow({ overview, token }: { overview: Overview; token: Token }): ReactNode {
  const balance = overview.balances.find(each => isSame(each, token))
  return (
    <div className="pad rule">
      <Held of={balance ?? { ...token, amount: "0.00", inAddresses: "0.00", waiting: "0.00", inEscrow: "0.00" }} />
    </div>
  )
}

const stepWords: Record<string, [string, string, string]> = {
  payout_address: ["Say where your money goes", "Your wallet's address, where each payout is sent", "/payout-address"],
  for_sale: ["Sell with a link", "It takes a minute and needs no server", "/links/new"],
  webhook: ["Tell your server about payments", "Optional: links need no server", "/webhooks/new"],
  first_payment: ["Take the first payment", "Choose what you sell, and open it as a payer would", "/links"],
}

function FirstSteps({ steps }: { steps: Overview["checklist"] }) {
  const done = steps.filter(each => each.done).length
  return (
    <section className="card" aria-label="First steps">
      <div className="pad head">
        <h2>To your first payment</h2>
        <span className="quiet num">
          {done} of {steps.length}
        </span>
      </div>
      {steps.map(({ step, done }) => {
        const [title, words, to] = stepWords[step] ?? [step, "", "/"]
        return (
          <Link key={step} to={to} className={`todo ${done ? "done" : ""}`}>
            <i className="tick" aria-hidden="true">
              {done ? "✓" : ""}
            </i>
            <span>
              <span className="strong">{title}</span>
              {!done && <span className="quiet"> · {words}</span>}
              {done && <span className="unseen"> (done)</span>}
            </span>
            {!done && <span className="go">Do it</span>}
          </Link>
        )
      })}
    </section>
  )
}
