/** Erasing a customer's personal data: what it would take first, then the deed, then the list of what was erased. */
import { Button, Checkbox, TextInput } from "@mantine/core"
import { useQueryClient } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { useState } from "react"
import type { Erasure, ErasureResult } from "../api/types.ts"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { RequestForm } from "../ui/form.tsx"
import { PageHead } from "../ui/page.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"

const path = "/api/console/erasures"

/** The field of the API that a text names a customer by. */
function customerOf(text: string): Record<string, string> | string {
  const name = text.trim()
  if (/^cs_/.test(name)) return { checkoutId: name }
  if (/^0x[0-9a-fA-F]{40}$/.test(name)) return { payer: name }
  if (/^[^@\s]+@[^@\s]+$/.test(name)) return { customerEmail: name }
  return "Enter an e-mail address, a wallet (0x and 40 digits), or the id of a checkout."
}

const columns: Column<Erasure>[] = [
  { head: "Checkouts", width: 6, cell: row => <span className="strong num">{row.checkouts}</span> },
  { head: "Subscriptions", width: 6, cell: row => <span className="num">{row.subscriptions}</span> },
  { head: "Events", width: 6, wide: true, cell: row => <span className="num">{row.events}</span> },
  { head: "Asked by", width: 14, wide: true, cell: row => <span className="quiet cut">{row.askedBy}</span> },
  { head: "When", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

interface Found {
  customer: Record<string, string>
  result: ErasureResult
}

export function Erasures() {
  const [found, setFound] = useState<Found | undefined>()
  const list = usePages<Erasure>(path)
  return (
    <>
      <PageHead title="Customers' data" request={{ path }} />
      <SettingsTabs />
      <div className="two">
        <div className="stack">
          <section className="card pad stack" aria-label="Erase a customer">
            <div>
              <h2>Erase a customer</h2>
              <p className="quiet">
                E-mail addresses, what the payer entered, metadata and descriptions are erased. Amounts, addresses and
                hashes stay: your books need them, and the chain keeps them.
              </p>
            </div>
            <RequestForm<{ customer: string }, ErasureResult>
              first={{ customer: "" }}
              right="erasure"
              submit="Count what would be erased"
              done="Nothing is erased yet"
              onDone={result => setFound(before => before && { ...before, result })}
              request={({ customer }) => {
                const named = customerOf(customer)
                return typeof named === "string" ? named : { method: "POST", path, body: { ...named, dryRun: true } }
              }}
              fields={form => (
                <TextInput
                  label="The customer"
                  description="An e-mail address, a wallet, or a checkout's id"
                  autoFocus
                  {...form.getInputProps("customer")}
                  onChange={event => {
                    form.setFieldValue("customer", event.currentTarget.value)
                    const named = customerOf(event.currentTarget.value)
                    setFound(typeof named === "string" ? undefined : ({ customer: named } as Found))
                  }}
                />
              )}
            />
            {found?.result && <Outcome {...found} close={() => setFound(undefined)} />}
          </section>
        </div>
        <section className="card" aria-label="List">
          <div className="pad head">
            <h2>Erased before</h2>
          </div>
          <DataTable
            name="erasures"
            columns={columns.map(each => ({ ...each, wide: each.wide || each.head === "Subscriptions" }))}
            list={list}
            empty={<p>No data erased yet.</p>}
          />
        </section>
      </div>
    </>
  )
}

const parts = [
  ["checkouts", "checkout", "checkouts"],
  ["subscriptions", "subscription", "subscriptions"],
  ["refunds", "refund", "refunds"],
  ["events", "event", "events"],
] as const

function Outcome({ customer, result, close }: Found & { close: () => void }) {
  const [isDropped, setDropped] = useState(false)
  const queries = useQueryClient()
  const erase = useAct<ErasureResult>({
    done: "The customer's data is erased",
    onDone: () => {
      void queries.invalidateQueries()
      close()
    },
  })
  const counts = parts.flatMap(([field, one, many]) =>
    result[field] > 0 ? [`${result[field]} ${result[field] === 1 ? one : many}`] : [],
  )
  const waits = result.pendingDeliveries > 0
  // What is still to be sent is a choice here, and no fault.
  const blocks = result.blockedBy.filter(each => !(waits && each.includes("pendingDeliveries")))
  if (counts.length === 0 && blocks.length === 0)
    return <p className="note info">There is no data of this customer here.</p>
  if (blocks.length > 0)
    return (
      <div className="note wait" role="status">
        <div>
          <p className="strong">The data can't be erased yet: end these first.</p>
          <ul>
            {blocks.map(id => (
              <li key={id}>
                {/^[a-z]+_[a-z0-9]+$/.test(id) ? (
                  <Link to="/payments/$id" params={{ id }} className="plain-link mono">
                    {id}
                  </Link>
                ) : (
                  id
                )}
              </li>
            ))}
          </ul>
        </div>
      </div>
    )
  const go = async () => {
    const title = `Erase ${Object.values(customer)[0]}?`
    const words = `Personal data in ${counts.join(", ")} is erased permanently. This can't be undone. The data disappears from backups as they expire.`
    if (!(await isSure({ title, words, yes: "Erase for ever" }))) return
    erase.mutate({ method: "POST", path, body: { ...customer, ...(isDropped ? { pendingDeliveries: "drop" } : {}) } })
  }
  return (
    <div className="stack rule" style={{ paddingTop: 16 }}>
      <p>
        Personal data goes from <b>{counts.join(", ")}</b>.
      </p>
      {result.kept.length > 0 && (
        <details>
          <summary className="quiet">What stays, and why</summary>
          <ul className="bullets second">
            {result.kept.map(each => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </details>
      )}
      {waits && (
        <Checkbox
          checked={isDropped}
          onChange={event => setDropped(event.currentTarget.checked)}
          label={`Drop the ${result.pendingDeliveries === 1 ? "event that is" : `${result.pendingDeliveries} events that are`} still to be delivered. Otherwise wait until they are delivered.`}
        />
      )}
      <div className="row">
        <Button variant="filled" loading={erase.isPending} disabled={waits && !isDropped} onClick={go}>
          Erase the customer
        </Button>
      </div>
    </div>
  )
}
