/** Reports: what was held, came in and went out in a time, as files for the books. */
import { Button, NativeSelect, TextInput } from "@mantine/core"
import type { UseQueryResult } from "@tanstack/react-query"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant, read } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { dayAfter, startTime } from "../api/days.ts"
import { networkTitle } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { Balance } from "../api/overview.ts"
import { useZone, zoneTitle } from "../api/zone.ts"
import { Held } from "../ui/held.tsx"
import { PartNotYet } from "../ui/not-yet.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"

const kinds = [
  ["payouts", "Payouts", "Each payout with the payments inside it. The lines add up to what reached your wallet."],
  ["books", "Books", "Every transfer in and out, with its reason and its value when it happened."],
  ["balance", "Balance", "What was held at the start, came in and went out by reason, and was held at the end."],
  ["tax", "Tax", "By month: received, given back, and the difference, with values in your currency."],
] as const

const others = [
  ["/api/console/transactions.csv", "Payments", true],
  ["/api/console/checkouts.csv", "Checkouts", false],
  ["/api/console/subscriptions.csv", "Subscriptions", false],
  ["/api/console/invoices.csv", "Invoices", false],
] as const

interface Span {
  /** The first day and the day after the last, as `2026-10-01`. */
  from: string
  to: string
}

const dayOf = (year: number, month: number): string => new Date(Date.UTC(year, month, 1)).toISOString().slice(0, 10)

/** The quarters and months up to now, the newest first, by name. */
export function spansOf(now: Date): { name: string; span: Span }[] {
  const year = now.getUTCFullYear()
  const quarter = Math.floor(now.getUTCMonth() / 3)
  const quarters = Array.from({ length: 5 }, (_, i) => {
    const first = (quarter - i) * 3
    const from = dayOf(year, first)
    const number = Math.floor(new Date(from).getUTCMonth() / 3) + 1
    return { name: `Quarter ${number} of ${from.slice(0, 4)}`, span: { from, to: dayOf(year, first + 3) } }
  })
  const months = Array.from({ length: 6 }, (_, i) => {
    const from = dayOf(year, now.getUTCMonth() - i)
    const name = new Date(from).toLocaleDateString("en", { month: "long", year: "numeric", timeZone: "UTC" })
    return { name, span: { from, to: dayOf(year, now.getUTCMonth() - i + 1) } }
  })
  return [...quarters, ...months, { name: `All of ${year}`, span: { from: dayOf(year, 0), to: dayOf(year + 1, 0) } }]
}

/** Midnight of a day in a zone; of what is no day, what the server will refuse. */
const midnight = (day: string, zone: string): string => startTime(day, zone) ?? `${day}T00:00:00Z`

export function Reports() {
  const balances = useLive(
    ["balances"],
    async signal => (await read<{ data: Balance[] }>("/api/console/balances", {}, signal)).data,
    { every: 30_000 },
  )
  const zone = useZone()
  const spans = spansOf(new Date())
  const found = useSearch({ strict: false }) as Partial<Span>
  const navigate = useNavigate()
  const { from = spans[0]?.span.from ?? "", to = spans[0]?.span.to ?? "" } = found
  const set = (next: Span) => void navigate({ to: "/reports", search: next as never, replace: true })
  const merchant = chosenMerchant.get() ?? undefined
  const query = { from: `${from}T00:00:00Z`, to: `${to}T00:00:00Z`, merchant }
  const ofTax = { from: midnight(from, zone), to: midnight(to, zone), merchant, tz: zone }
  const chosen = spans.find(({ span }) => span.from === from && span.to === to)
  return (
    <>
      <PageHead
        of={balances}
        title="Reports"
        request={{ path: "/api/console/reports/payouts.csv", query: { from: query.from, to: query.to } }}
      />
      <div className="two">
        <div className="stack">
          <section className="card pad" aria-label="Time">
            <div className="row" style={{ alignItems: "flex-end", gap: 12 }}>
              <NativeSelect
                label="Time"
                data={[...spans.map(({ name }) => name), ...(chosen ? [] : ["Other"])]}
                value={chosen?.name ?? "Other"}
                onChange={event => {
                  const next = spans.find(({ name }) => name === event.currentTarget.value)
                  if (next) set(next.span)
                }}
              />
              <TextInput
                type="date"
                label="From"
                value={from}
                onChange={event => set({ from: event.currentTarget.value, to })}
              />
              <TextInput
                type="date"
                label="To (inclusive)"
                value={dayAfter(to, -1)}
                min={from}
                onChange={event => set({ from, to: dayAfter(event.currentTarget.value, 1) })}
              />
            </div>
            <p className="quiet" style={{ paddingTop: 8 }}>
              Days begin at midnight UTC, and times in the files are in UTC.
              {zone !== "UTC" && ` The tax report's days and months begin at midnight in ${zoneTitle(zone)}.`}
            </p>
          </section>
          <section className="card" aria-label="Reports">
            {kinds.map(([kind, name, words], i) => (
              <div key={kind} className={`pad row between ${i > 0 ? "rule" : ""}`} style={{ flexWrap: "nowrap" }}>
                <div>
                  <div className="strong">{name}</div>
                  <div className="quiet">{words}</div>
                </div>
                <LinkButton
                  href={pathOf({
                    path: `/api/console/reports/${kind}.csv`,
                    query: kind === "tax" ? ofTax : query,
                  })}
                >
                  {`Export ${name.toLowerCase()}`}
                </LinkButton>
              </div>
            ))}
          </section>
          <section className="card pad stack tight" aria-label="Whole lists">
            <h2>Whole lists</h2>
            <div className="row">
              {others.map(([path, name, isTimed]) => (
                <LinkButton key={path} href={pathOf({ path, query: isTimed ? query : { merchant } })}>
                  {name}
                </LinkButton>
              ))}
            </div>
            <div className="row">
              <LinkButton href={pathOf({ path: "/api/console/receipts.ndjson", query })}>Signed receipts</LinkButton>
            </div>
            <p className="quiet">
              Payments and receipts cover the time above; the other lists are complete. Anyone can check a signed
              receipt without asking you or this service.{" "}
              <Link to="/addresses" className="plain-link">
                Receiving addresses
              </Link>{" "}
              have a file with which you can recover their money without this service.
            </p>
          </section>
        </div>
        <div className="stack">
          <HeldNow balances={balances} />
          <section className="card pad stack tight" aria-label="By mail">
            <h2>By mail, each month</h2>
            <p className="quiet">
              The statement of the previous month in UTC, sent from the second day of a month on, for owners and
              finance.
            </p>
            <div className="row">
              <Button size="xs" component={Link} to="/notifications">
                Turn it on
              </Button>
            </div>
          </section>
        </div>
      </div>
    </>
  )
}

/** What is held now, by network and token. */
function HeldNow({ balances }: { balances: UseQueryResult<Balance[]> }) {
  if (!balances.data) return <PartNotYet query={balances} />
  return (
    <section className="card pad stack" aria-label="Held now">
      <h2>Not in your wallet yet</h2>
      {balances.data.length === 0 && <p className="quiet">Nothing. Payments are paid out automatically.</p>}
      {balances.data.map(of => (
        <div key={`${of.chain}${of.token}`}>
          <div className="label">{networkTitle(of.chain)}</div>
          <Held of={of} />
        </div>
      ))}
    </section>
  )
}
