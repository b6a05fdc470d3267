/** One payment, checkout or payout: how much, why it stands as it does, what can be done, and all that happened. */
import { Link, useParams } from "@tanstack/react-router"
import { explorerUrl, facts, networkTitle } from "../api/facts.ts"
import {
  isCheckoutId,
  type NextAction,
  type Story,
  type StoryEntry,
  useCheckout,
  useStory,
  useTransaction,
} from "../api/story.ts"
import type { Checkout, Transaction } from "../api/types.ts"
import { Hash, Id } from "../ui/copy.tsx"
import { Decide } from "../ui/decide.tsx"
import { Money } from "../ui/money.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Problem } from "../ui/problem.tsx"
import { Share } from "../ui/share.tsx"
import { Status, type Tone } from "../ui/status.tsx"
import { Moment, Time } from "../ui/time.tsx"
import { CheckoutActions } from "./checkout-actions.tsx"

export function OnePayment() {
  const { id } = useParams({ strict: false }) as { id: string }
  const isCheckout = isCheckoutId(id)
  const transaction = useTransaction(id, !isCheckout)
  const checkout = useCheckout(isCheckout ? id : null)
  const story = useStory(id)
  const main = isCheckout ? checkout : transaction
  if (main.error && !main.data) return <Problem error={main.error} retry={() => void main.refetch()} />
  if (main.data === null)
    return (
      <>
        <PageHead title={id} up={{ to: "/payments", name: "Payments" }} />
        <section className="card pad stack">
          <Happened story={story.data} error={story.error} />
        </section>
      </>
    )
  if (!main.data) return <Loading id={id} />
  return isCheckout && checkout.data ? (
    <CheckoutView checkout={checkout.data} story={story.data} error={story.error} />
  ) : transaction.data ? (
    <MovementView row={transaction.data} story={story.data} error={story.error} />
  ) : (
    <Loading id={id} />
  )
}

function Loading({ id }: { id: string }) {
  return (
    <div className="late" role="status" aria-label="Loading">
      <PageHead
        title={id}
        up={{ to: "/payments", name: "Payments" }}
        head={<span className="bone" style={{ width: 200, height: 32 }} />}
      />
      <div className="two">
        <section className="card pad stack">
          {Array.from({ length: 5 }, (_, i) => (
            <span key={i} className="bone" style={{ width: `${60 - i * 6}%` }} />
          ))}
        </section>
        <section className="card pad stack">
          <span className="bone" style={{ width: "80%" }} />
          <span className="bone" style={{ width: "60%" }} />
        </section>
      </div>
    </div>
  )
}

interface Told {
  story: Story | undefined
  error: unknown
}

const names: Record<Transaction["type"], string> = {
  payment: "Payment",
  agent: "Payment by an agent",
  share: "Share",
  sweep: "Payout",
  return: "Return",
  capture: "Capture",
  void: "Release",
  refund: "Refund",
}

function MovementView({ row, story, error }: Told & { row: Transaction }) {
  const isOpen = row.status === "open"
  return (
    <>
      <PageHead
        title={`${names[row.type]} ${row.amount} ${row.currency}`}
        up={{ to: "/payments", name: "Payments" }}
        request={{ path: "/api/console/transactions", query: { q: row.id } }}
        head={
          <>
            <Money size="money" amount={row.amount} currency={row.currency} />
            <Status state={row.status} why={row.exception} />
          </>
        }
        actions={isOpen && <Decide payment={{ ...row, returnAddress: null, surplus: null, status: "open" } as never} />}
      />
      <Why story={story} tone={toneOf(row.status)} />
      <div className="two">
        <section className="card pad stack">
          <h2>What happened</h2>
          <Happened story={story} error={error} />
        </section>
        <div className="stack">
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                ["Kind", names[row.type]],
                ["When", <Time key="t" at={row.createdAt} />],
                row.payer && ["Payer", <Linked key="p" chain={row.chain} kind="address" value={row.payer} />],
                row.recipient && ["To", <Linked key="r" chain={row.chain} kind="address" value={row.recipient} />],
                ["Network", networkTitle(row.chain)],
                [
                  "Token",
                  <span key="c">
                    {row.currency} {!row.currencyVerified && <span className="bad">unknown token</span>}
                  </span>,
                ],
                row.txHash && ["Transaction", <Linked key="h" chain={row.chain} kind="tx" value={row.txHash} />],
                row.sessionId && [
                  "Checkout",
                  <Link key="s" to="/payments/$id" params={{ id: row.sessionId }}>
                    see it
                  </Link>,
                ],
                row.paywallId && [
                  "Paywall",
                  <Link key="w" to="/paywalls/$id" params={{ id: row.paywallId }}>
                    see it
                  </Link>,
                ],
                row.paymentId &&
                  row.paymentId !== row.id && [
                    "Payment",
                    <Link key="o" to="/payments/$id" params={{ id: row.paymentId }}>
                      see it
                    </Link>,
                  ],
                ["Id", <Id key="i" value={row.id} />],
              ]}
            />
          </section>
        </div>
      </div>
    </>
  )
}

/** A hash or an address, and beside it the way to the block explorer where there is one. */
function Linked({ chain, kind, value }: { chain: string; kind: "tx" | "address"; value: string }) {
  const url = explorerUrl(chain, kind, value)
  return (
    <span className="row end" style={{ gap: 6 }}>
      <Hash value={value} what={kind === "tx" ? "Hash" : "Address"} dot={kind === "address"} />
      {url && (
        <a href={url} target="_blank" rel="noreferrer" aria-label="Open in the block explorer">
          ↗
        </a>
      )}
    </span>
  )
}

function CheckoutView({ checkout, story, error }: Told & { checkout: Checkout }) {
  const { amount, amountReceived, currency, status, exception, description, metadata, payerInfo } = checkout
  const isPart = exception === "underpaid" && status === "pending"
  const isOther = amountReceived !== amount && Number.parseFloat(amountReceived) !== 0
  return (
    <>
      <PageHead
        title={description ?? `Checkout of ${amount} ${currency}`}
        up={{ to: "/checkouts", name: "Checkouts" }}
        request={{ path: `/api/console/checkouts/${checkout.id}` }}
        head={
          <>
            {isOther ? (
              <Money size="money" amount={amountReceived} of={amount} currency={currency} />
            ) : (
              <Money size="money" amount={amount} currency={currency} />
            )}
            <Status state={isPart ? "pending" : status} why={exception} />
          </>
        }
        actions={<CheckoutActions checkout={checkout} />}
      />
      {story ? <Why story={story} tone={toneOf(status, exception)} /> : <p className="note">{checkout.message}</p>}
      <div className="two" style={{ marginTop: 16 }}>
        <section className="card pad stack">
          <h2>What happened</h2>
          <Happened story={story} error={error} />
        </section>
        <div className="stack">
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                description ? ["For", description] : null,
                ["Due", <Money key="a" amount={amount} currency={currency} />],
                ["Received", <Money key="r" amount={amountReceived} currency={currency} />],
                checkout.payer && [
                  "Payer",
                  <Linked key="p" chain={checkout.chain} kind="address" value={checkout.payer} />,
                ],
                checkout.customerEmail && ["E-mail", checkout.customerEmail],
                ["Network", networkTitle(checkout.chain)],
                checkout.payTo && [
                  "Paid to",
                  <span key="d" className="row end" style={{ gap: 6 }}>
                    <Hash value={checkout.payTo} />
                    <a href={`${facts.baseUrl}/address/${checkout.payTo}`} target="_blank" rel="noreferrer">
                      terms
                    </a>
                  </span>,
                ],
                checkout.txHash && [
                  "Transaction",
                  <Linked key="h" chain={checkout.chain} kind="tx" value={checkout.txHash} />,
                ],
                ["Created", <Time key="c" at={checkout.createdAt} />],
                status === "pending" && ["Can be paid until", <Time key="e" at={checkout.expiresAt} />],
                ["Id", <Id key="i" value={checkout.id} />],
              ]}
            />
          </section>
          <Fields title="Metadata" of={metadata} />
          <Fields title="From the payer" of={payerInfo} />
          {status === "pending" && <Share url={checkout.url} title="The payer's page" />}
        </div>
      </div>
    </>
  )
}

/** The merchant's or the payer's own fields. */
function Fields({ title, of }: { title: string; of: Record<string, unknown> | null }) {
  const entries = Object.entries(of ?? {})
  if (entries.length === 0) return null
  return (
    <section className="card pad stack tight">
      <h2>{title}</h2>
      <Facts
        of={entries.map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)])}
      />
    </section>
  )
}

const toneOf = (status: string, exception?: string | null): Tone => {
  if (exception && status === "pending") return "wait"
  if (["open", "held"].includes(status)) return "wait"
  if (["confirmed", "granted", "final"].includes(status)) return "good"
  if (["reversed", "failed", "reverted"].includes(status)) return "bad"
  return "info"
}

/** The reason, in words, and the next steps. */
function Why({ story, tone }: { story: Story | undefined; tone: Tone }) {
  if (!story) return null
  const { why, next } = story.status
  return (
    <div className={`note ${tone}`} role="status" style={{ marginBottom: 16 }}>
      <div>
        <span className="strong">{why}</span>
        <ul>
          {next.map(each => (
            <li key={each.text}>
              <Next action={each} />
            </li>
          ))}
        </ul>
      </div>
    </div>
  )
}

/** A step that is only to look leads there; the others are the buttons at the top. */
function Next({ action: { text, route } }: { action: NextAction }) {
  const [, id] =
    /^GET \/api\/console\/(?:timeline|payouts|payments|checkouts)\/([a-z]+_[a-z0-9]+)/.exec(route ?? "") ?? []
  return id ? (
    <Link to="/payments/$id" params={{ id }} style={{ color: "inherit", textDecoration: "underline" }}>
      {text}
    </Link>
  ) : (
    text
  )
}

const tones: Record<string, Tone> = {
  confirmed: "good",
  paid: "good",
  needs_decision: "wait",
  gone: "bad",
  ended: "off",
}

function Happened({ story, error }: Told) {
  if (!story && error)
    return <p className="quiet">The story of this could not be loaded. What is beside this is complete.</p>
  if (!story)
    return (
      <div className="stack late">
        <span className="bone" style={{ width: "50%" }} />
        <span className="bone" style={{ width: "40%" }} />
      </div>
    )
  return (
    <ol className="story">
      {story.data.map(entry => (
        <Entry key={`${entry.at}${entry.kind}${entry.text}`} entry={entry} />
      ))}
    </ol>
  )
}

const HASHES = /(0x[0-9a-fA-F]{40,64})/

function Entry({ entry: { at, kind, text, txHash, object } }: { entry: StoryEntry }) {
  return (
    <li>
      <i className={tones[kind] ?? (kind === "due" ? "wait" : "good")} />
      <div>
        {text.split(HASHES).map((part, i) => (HASHES.test(part) ? <Hash key={i} value={part} dot={false} /> : part))}
      </div>
      <div className="quiet row" style={{ gap: 8 }}>
        <Moment at={at} />
        {txHash && <Hash value={txHash} what="Hash" dot={false} />}
        {kind === "delivery" && object && (
          <Link to="/webhooks/deliveries/$id" params={{ id: object }}>
            see each attempt
          </Link>
        )}
      </div>
    </li>
  )
}
