/** One payment, checkout or payout: how much, why it stands as it does, what can be done, and all that happened. */
import { useParams } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { fieldTitle } from "../../ui/field-title.ts"
import { facts, networkTitle } from "../api/facts.ts"
import { isCheckoutId, type Story, useCheckout, useStory, useTransaction } from "../api/story.ts"
import type { Checkout, Transaction } from "../api/types.ts"
import { Hash, Id } from "../ui/copy.tsx"
import { Decide } from "../ui/decide.tsx"
import { EscrowActions, EscrowParts, Refunds } from "../ui/escrow.tsx"
import { IdLink, Linked } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead, type Read } from "../ui/page.tsx"
import { Share } from "../ui/share.tsx"
import { Status, type Tone } from "../ui/status.tsx"
import { Happened, Parts, Why } from "../ui/story.tsx"
import { Time } from "../ui/time.tsx"
import { CheckoutActions } from "./checkout-actions.tsx"

const payments = { to: "/payments", name: "Payments" }
const checkouts = { to: "/checkouts", name: "Checkouts" }

export function OnePayment() {
  const { id } = useParams({ strict: false }) as { id: string }
  const isCheckout = isCheckoutId(id)
  const transaction = useTransaction(id, !isCheckout)
  const checkout = useCheckout(isCheckout ? id : null)
  const story = useStory(id)
  const main = isCheckout ? checkout : transaction
  const told = { story: story.data, error: story.error }
  if (isCheckout && checkout.data) return <CheckoutView checkout={checkout.data} read={checkout} {...told} />
  if (transaction.data) return <MovementView row={transaction.data} read={transaction} {...told} />
  if (!isCheckout && transaction.data === null) {
    // Subscriptions, invoices and events are no movements; they have a story.
    if (!story.data) return <NotYet query={story} up={payments} />
    return <Page head={<PageHead title={id} up={payments} />} {...told} tone="info" rail={null} />
  }
  return <NotYet query={main} up={isCheckout ? checkouts : payments} />
}

interface StoryGiven {
  story: Story | undefined
  error: unknown
}

function Page({ head, story, error, tone, rail }: StoryGiven & { head: ReactNode; tone: Tone; rail: ReactNode }) {
  return (
    <>
      {head}
      <Why story={story} tone={tone} />
      <div className="two">
        <div className="stack">
          <section className="card pad stack">
            <h2>What happened</h2>
            <Happened story={story} error={error} />
          </section>
          <Parts of={story?.payouts ?? []} />
        </div>
        <div className="stack">{rail}</div>
      </div>
    </>
  )
}

/** The payment that waits for a decision, as the story's next steps name it. */
function waitingIn(story: Story | undefined) {
  const routes = story?.status.next.map(({ route }) => /payments\/(pay_[a-z0-9]+)\/(accept|return)$/.exec(route ?? ""))
  const id = routes?.find(found => found)?.[1]
  const payment = story?.payments?.find(each => each.id === id)
  if (!payment) return undefined
  return { ...payment, surplus: payment.surplus === null ? null : { amount: payment.surplus } }
}

/** The decision, where one is due. */
function Decision({ story }: { story: Story | undefined }) {
  const waiting = waitingIn(story)
  return waiting ? <Decide payment={waiting as never} /> : null
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

function MovementView({ row, read, story, error }: StoryGiven & { row: Transaction; read: Read }) {
  const { checkout, address } = story ?? {}
  const isPart = row.exception === "underpaid" && checkout
  return (
    <Page
      story={story}
      error={error}
      tone={toneOf(story?.status.word === "Needs you" ? "open" : row.status)}
      head={
        <PageHead
          of={read}
          title={row.description ?? `${names[row.type]} of ${row.amount} ${row.currency}`}
          up={payments}
          request={{ path: `/api/console/payments/${row.id}` }}
          head={
            <>
              <Money
                size="money"
                amount={row.amount}
                of={isPart ? checkout.amount : undefined}
                currency={row.currency}
              />
              <Status state={row.status} why={row.exception} />
            </>
          }
          actions={<Decision story={story} />}
        />
      }
      rail={
        <>
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                row.description && ["For", row.description],
                row.type !== "payment" && ["Kind", names[row.type]],
                ["When", <Time key="t" at={row.createdAt} />],
                row.payer && ["Payer", <Linked key="p" chain={row.chain} kind="address" value={row.payer} />],
                checkout?.customerEmail && ["E-mail", checkout.customerEmail],
                row.recipient && ["To", <Linked key="r" chain={row.chain} kind="address" value={row.recipient} />],
                ["Network", networkTitle(row.chain)],
                !row.currencyVerified && [
                  "Token",
                  <span key="c">
                    <Hash value={row.token} /> <span className="bad">not the token you asked for</span>
                  </span>,
                ],
                row.txHash && ["Transaction", <Linked key="h" chain={row.chain} kind="tx" value={row.txHash} />],
                address && ["Paid to", <PayTo key="a" address={address.address} />],
                row.sessionId && ["Checkout", <IdLink key="s" to="/checkouts" id={row.sessionId} />],
                row.paywallId && ["Paywall", <IdLink key="w" to="/paywalls" id={row.paywallId} />],
                row.bundleId && ["API", <IdLink key="b" to="/bundles" id={row.bundleId} />],
                row.paymentId &&
                  row.paymentId !== row.id && ["Of the payment", <IdLink key="o" to="/payments" id={row.paymentId} />],
                ["Id", <Id key="i" value={row.id} />],
              ]}
            />
          </section>
          <Fields title="Metadata" of={checkout?.metadata ?? null} />
          <Answers of={checkout?.payerInfo ?? null} />
        </>
      }
    />
  )
}

/** The receiving address, and its terms for whoever wants to check them. */
const PayTo = ({ address }: { address: string }) => (
  <span className="row end" style={{ gap: 6 }}>
    <Hash value={address} />
    <a href={`${facts.baseUrl}/address/${address}`} target="_blank" rel="noreferrer">
      terms
    </a>
  </span>
)

const isZero = (amount: string): boolean => !/[1-9]/.test(amount)

function CheckoutView({ checkout, read, story, error }: StoryGiven & { checkout: Checkout; read: Read }) {
  const { amount, amountReceived, currency, status, exception, description, metadata, payerInfo, chain } = checkout
  const isOther = amountReceived !== amount && !isZero(amountReceived)
  const waiting = waitingIn(story)
  const waits = waiting !== undefined
  // A checkout has a payer once it is paid; money that waits has one of its own.
  const payer = checkout.payer ?? waiting?.payer
  return (
    <Page
      story={story ?? undefined}
      error={error}
      tone={waits ? "wait" : toneOf(status)}
      head={
        <PageHead
          of={read}
          title={description ?? `Checkout of ${amount} ${currency}`}
          up={checkouts}
          request={{ path: `/api/console/payments/${checkout.id}` }}
          head={
            <>
              <Money
                size="money"
                amount={isOther ? amountReceived : amount}
                of={isOther ? amount : undefined}
                currency={currency}
              />
              <Status state={waits && status !== "confirmed" ? "open" : status} why={exception} />
            </>
          }
          actions={
            <>
              {waits ? <Decision story={story} /> : <CheckoutActions checkout={checkout} />}
              <EscrowActions checkout={checkout} />
            </>
          }
        />
      }
      rail={
        <>
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                description && ["For", description],
                ["Due", <Money key="a" amount={amount} currency={currency} />],
                ["Received", <Money key="r" amount={amountReceived} currency={currency} />],
                payer && ["Payer", <Linked key="p" chain={chain} kind="address" value={payer} />],
                checkout.customerEmail && ["E-mail", checkout.customerEmail],
                ["Network", networkTitle(chain)],
                checkout.payTo && ["Paid to", <PayTo key="d" address={checkout.payTo} />],
                checkout.txHash && ["Transaction", <Linked key="h" chain={chain} kind="tx" value={checkout.txHash} />],
                ["Created", <Time key="c" at={checkout.createdAt} />],
                status === "pending" && ["Can be paid until", <Time key="e" at={checkout.expiresAt} />],
                ["Id", <Id key="i" value={checkout.id} />],
              ]}
            />
          </section>
          <EscrowParts checkout={checkout} />
          <Refunds checkout={checkout} />
          {["pending", "verifying"].includes(status) && <Share url={checkout.url} title="The payer's page" />}
          <Fields title="Metadata" of={metadata} />
          <Answers of={payerInfo} />
        </>
      }
    />
  )
}

/** What the payer answered before paying. */
function Answers({ of }: { of: Record<string, unknown> | null }) {
  const names = Object.keys(of ?? {})
  const isTwice = new Set(names.map(fieldTitle)).size < names.length
  return <Fields title="From the payer" of={of} {...(isTwice ? {} : { nameOf: fieldTitle })} />
}

/** The merchant's or the payer's own fields. */
function Fields({
  title,
  of,
  nameOf = name => name,
}: {
  title: string
  of: Record<string, unknown> | null
  nameOf?: (name: string) => string
}) {
  const entries = Object.entries(of ?? {})
  if (entries.length === 0) return null
  return (
    <section className="card pad stack tight">
      <h2>{title}</h2>
      <Facts
        of={entries.map(([name, value]) => [
          nameOf(name),
          typeof value === "object" ? JSON.stringify(value) : String(value),
        ])}
      />
    </section>
  )
}

const toneOf = (status: string): Tone => {
  if (["open", "held"].includes(status)) return "wait"
  if (["confirmed", "granted", "final"].includes(status)) return "good"
  if (["reversed", "failed", "reverted"].includes(status)) return "bad"
  return "info"
}
