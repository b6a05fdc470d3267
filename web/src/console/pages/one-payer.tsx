/** One payer, by wallet or e-mail address: what was paid and sent back, subscriptions, and access, which can be revoked. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { networkTitle } from "../api/facts.ts"

import { useRight } from "../api/me.ts"
import type { Grant, Page, PayerWhole, Transaction } from "../api/types.ts"
import { Hash } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { useThing } from "../ui/use-thing.ts"
import { moneyColumns, toPayment } from "./payments.tsx"

const up = { to: "/payers", name: "Payers" }

export function OnePayer() {
  const { id, path, query } = useThing<PayerWhole>("payer", "/api/console/payers")
  const paid = usePages<Transaction>("/api/console/transactions", {
    type: "payment",
    ...(id.includes("@") ? { customerEmail: id } : { q: id }),
  })
  const payer = query.data
  if (!payer) return <NotYet query={query} up={up} />
  const totals = payer.wallets.flatMap(({ totals }) => totals)
  const [main] = totals
  return (
    <>
      <PageHead
        of={query}
        title={id.startsWith("0x") ? `${id.slice(0, 6)}…${id.slice(-4)}` : id}
        up={up}
        request={{ path }}
        head={
          <>
            {main ? (
              <Money size="money" amount={main.paid} currency={main.currency} />
            ) : (
              <span className="figure">–</span>
            )}
            {id.startsWith("0x") ? <Hash value={id} /> : <span className="second">{id}</span>}
          </>
        }
      />
      <div className="two">
        <div className="stack">
          <section className="card" aria-label="Payments">
            <div className="pad head">
              <h2>Last payments</h2>
              <Link to="/payments" search={{ q: id } as never}>
                All payments
              </Link>
            </div>
            <DataTable
              name="payments"
              isPart
              columns={moneyColumns.filter(({ head }) => !["Payer", "Transaction"].includes(head))}
              list={paid}
              to={toPayment}
              empty={<p>There is no payment by this payer.</p>}
            />
          </section>
          <Subscribed of={payer} />
          <Access of={payer} />
        </div>
        <div className="stack">
          {payer.wallets.map(({ address, totals, lastPaidAt }) => (
            <section key={address} className="card pad stack tight" aria-label="Wallet">
              <Hash value={address} />
              <Facts
                of={[
                  ["Last paid", <Time key="l" at={lastPaidAt} />],
                  ...totals.flatMap(each => {
                    const on = totals.length > 1 ? ` on ${networkTitle(each.chain)}` : ""
                    const rows: [string, string][] = [
                      ["Paid", each.paid],
                      ["Waits for you", each.open],
                      ["Reserved", each.reserved],
                      ["Sent back", each.returned],
                    ]
                    return rows
                      .filter(([name, amount]) => name === "Paid" || /[1-9]/.test(amount))
                      .map(
                        ([name, amount]) =>
                          [`${name}${on}`, <Money key={name} amount={amount} currency={each.currency} />] as const,
                      )
                  }),
                ]}
              />
            </section>
          ))}
        </div>
      </div>
    </>
  )
}

function Subscribed({ of: { subscriptions } }: { of: PayerWhole }) {
  return (
    <section className="card" aria-label="Subscriptions">
      <div className="pad head">
        <h2>Subscriptions</h2>
      </div>
      {subscriptions.length === 0 && <p className="quiet pad rule">None.</p>}
      {subscriptions.map(({ id, status, paidUntil, customerEmail }) => (
        <Link key={id} to="/subscriptions/$id" params={{ id }} className="todo">
          <Status state={status} />
          <span className="cut">{customerEmail ?? id}</span>
          {paidUntil && (
            <span className="quiet" style={{ marginInlineStart: "auto" }}>
              paid until <Time at={paidUntil} />
            </span>
          )}
        </Link>
      ))}
    </section>
  )
}

const FAR = 3_000

function Access({ of: { access } }: { of: PayerWhole }) {
  const may = useRight("payers")
  const revoke = useAct({ done: "The access is revoked" })
  /** The API revokes single grants; the payer's one for a paywall is looked up first. */
  const askRevoke = async (paywallId: string, name: string, address: string) => {
    const words = "The time that the payment added is removed. The money stays yours."
    if (!(await isSure({ title: `Revoke access to “${name}”?`, words, yes: "Revoke" }))) return
    const path = `/api/console/paywalls/${paywallId}/grants`
    const { data } = await read<Page<Grant>>(path, { limit: 100 })
    const grant = data.find(each => each.address.toLowerCase() === address.toLowerCase() && each.revokedAt === null)
    if (grant) revoke.mutate({ method: "DELETE", path: `${path}/${grant.id}`, body: {} })
  }
  return (
    <section className="card" aria-label="Access">
      <div className="pad head">
        <h2>Access</h2>
      </div>
      {access.length === 0 && <p className="quiet pad rule">None.</p>}
      {access.map(({ paywallId, name, address, expiresAt, callsLeft }) => (
        <div key={`${paywallId}${address}`} className="pad rule row between">
          <Link to="/paywalls/$id" params={{ id: paywallId }} className="strong">
            {name}
          </Link>
          <span className="row">
            <span className="quiet">
              {callsLeft !== null && `${callsLeft} calls left `}
              {expiresAt === null || new Date(expiresAt).getFullYear() > FAR ? (
                "for ever"
              ) : (
                <>
                  until <Time at={expiresAt} />
                </>
              )}
            </span>
            <Button size="xs" disabled={!may} onClick={() => askRevoke(paywallId, name, address)}>
              Revoke
            </Button>
          </span>
        </div>
      ))}
    </section>
  )
}
