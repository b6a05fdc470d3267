/** Payments that wait for a decision: one by one, or up to 50 at once. */
import { Button } from "@mantine/core"
import { useQueryClient } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { useState } from "react"
import { approvalOf } from "../api/act.ts"
import { askWallet } from "../api/asked.ts"
import { write } from "../api/client.ts"
import { failureOf, type TypedData } from "../api/failure.ts"
import { useRight } from "../api/me.ts"
import { askNeeds, needsKey } from "../api/needs.ts"
import type { Payment } from "../api/types.ts"
import { Hash } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { Decide, DecideDialog } from "../ui/decide.tsx"
import { amountText, Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"
import { waitingAmount } from "../ui/waiting.ts"
import { What } from "./payments.tsx"

const columns: Column<Payment>[] = [
  {
    head: "Amount",
    width: 12,
    cell: row => (
      <>
        <Money amount={waitingAmount(row)} currency={row.currency} />
        {row.status === "granted" && <div className="quiet num">extra, of {amountText(row.amount)}</div>}
        {row.exception === "duplicate" && (
          <div className="quiet">{row.buys ? "after the link was used up" : "a second payment"}</div>
        )}
      </>
    ),
  },
  {
    head: "Why",
    width: 16,
    cell: row => <Status state="open" why={row.status === "granted" ? "overpaid" : row.exception} />,
  },
  { head: "For", width: 14, cell: row => <What {...(row as never as Parameters<typeof What>[0])} /> },
  { head: "Payer", width: 12, wide: true, cell: row => (row.payer ? <Hash value={row.payer} /> : "–") },
  { head: "Since", width: 8, wide: true, cell: row => <Time at={row.createdAt} /> },
  { head: "Decide", width: 14, right: true, cell: row => <Decide payment={row} size="xs" /> },
]

const MOST_AT_ONCE = 50

export function NeedsYou() {
  const list = useList<Payment>(needsKey, askNeeds)
  const may = useRight("money")
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set())
  const [isAccepting, setAccepting] = useState(false)
  const picked = list.rows?.filter(({ id }) => ids.has(id)).slice(0, MOST_AT_ONCE) ?? []
  const acceptable = picked.filter(row => row.acceptable)
  return (
    <>
      <PageHead
        title="Needs you"
        request={{ path: "/api/console/payments", query: { status: "open" } }}
        actions={picked.length > 0 && <ReturnMany payments={picked} done={() => setIds(new Set())} />}
      />
      {(list.rows?.length ?? 0) > 0 && (
        <p className="second lead">
          Accept: you keep the money, and an order that nobody has paid counts as paid. Return: the money goes back to
          an address that the payer names. Until you decide, it stays where it is.
        </p>
      )}
      {picked.length > 0 && (
        <div className="strip wait">
          <span>
            {picked.length} chosen{picked.length === MOST_AT_ONCE ? ", the most at once" : ""}
          </span>
          <span className="row">
            <Button size="xs" onClick={() => setIds(new Set())}>
              Choose none
            </Button>
            <Button
              size="xs"
              variant="filled"
              disabled={!may || acceptable.length === 0}
              onClick={() => setAccepting(true)}
            >
              Accept {acceptable.length}
            </Button>
          </span>
        </div>
      )}
      {!may && (
        <div className="strip wait">
          <NoRight right="money" />
        </div>
      )}
      <section className="card" aria-label="List">
        <DataTable
          name="payments to decide"
          columns={columns}
          list={list}
          to={({ id }) => `/payments/${id}`}
          picked={may ? { ids, set: setIds } : undefined}
          empty={
            <>
              <h2>Nothing needs you</h2>
              <p>
                Payments that are too small, too large, too late, made twice or in another token wait here for your
                decision.
              </p>
              <Button component={Link} to="/payments">
                See the payments
              </Button>
            </>
          }
        />
      </section>
      {isAccepting && (
        <DecideDialog
          kind="accept"
          payments={acceptable}
          close={() => {
            setAccepting(false)
            setIds(new Set())
          }}
        />
      )}
    </>
  )
}

interface Outcome {
  id: string
  payment: Payment | null
  error: { error?: string; message?: string; details?: { typedData?: TypedData }[] } | null
}

/** Each goes to the address that its payer named; what a wallet has to sign is asked for once, then sent again. */
function ReturnMany({ payments, done }: { payments: Payment[]; done: () => void }) {
  const queries = useQueryClient()
  const [said, setSaid] = useState("")
  const [isBusy, setBusy] = useState(false)
  const may = useRight("money")
  const send = (returns: object[]) => write<{ data: Outcome[] }>("POST", "/api/console/payments/return", { returns })
  const go = async () => {
    const title = `Return ${payments.length} payments?`
    const words = "Each payment goes back to the address that its payer named. Money that was sent can't be recalled."
    if (!(await isSure({ title, words, yes: `Return ${payments.length}` }))) return
    setBusy(true)
    setSaid("")
    try {
      const first = (await send(payments.map(({ id }) => ({ id })))).data
      const asked = first.filter(({ error }) => error?.error === "RETURN_APPROVAL_REQUIRED")
      const data = asked.flatMap(({ error }) => error?.details?.flatMap(({ typedData }) => typedData ?? []) ?? [])
      const signatures = data.length > 0 ? await askWallet("return", data) : []
      const signed = asked.map(({ id }, i) => ({
        id,
        approval: approvalOf(data.slice(i, i + 1), signatures.slice(i, i + 1)),
      }))
      const second = signed.length > 0 ? (await send(signed)).data : []
      const ended = [...first.filter(each => !asked.includes(each)), ...second]
      const failed = ended.filter(({ error }) => error)
      setSaid(
        failed.length === 0
          ? ""
          : `${ended.length - failed.length} returned. ${failed.length} not: ${failed[0]?.error?.message ?? ""}`,
      )
      if (failed.length === 0) done()
    } catch (error) {
      setSaid(failureOf(error).message)
    }
    setBusy(false)
    await queries.invalidateQueries()
  }
  return (
    <>
      {said && (
        <span className="bad" role="alert">
          {said}
        </span>
      )}
      <Button loading={isBusy} disabled={!may} onClick={go}>
        Return {payments.length}
      </Button>
    </>
  )
}
