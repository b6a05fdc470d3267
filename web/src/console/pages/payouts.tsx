/** Payouts: what left for the merchant's wallets and those of others, and why something is held. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { networkTitle } from "../api/facts.ts"
import type { Payout } from "../api/types.ts"
import { useZone } from "../api/zone.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips, PickChip } from "../ui/chips.tsx"
import { Hash, Id } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { TimeChip, type TimeSearch, timeQuery, timeWords } from "../ui/time-chip.tsx"
import { useColumns } from "../ui/use-columns.tsx"

export interface PayoutsSearch extends TimeSearch {
  kind?: Payout["kind"]
  state?: Payout["state"]
}

export const payoutKinds: Record<Payout["kind"], string> = {
  sweep: "To your wallet",
  share: "Share of a split",
  return: "Back to a payer",
  capture: "Out of escrow",
}
const kinds = [["", "All kinds"], ...Object.entries(payoutKinds)] as [Payout["kind"] | "", string][]
/** Why a payout is held, by the API's word. */
const heldWords: Record<string, string> = {
  short: "its address holds too little",
  sanctions: "its recipient is on a sanctions list",
  simulation: "it would fail on the network now",
  low_gas: "the service's wallet lacks gas",
  gas_budget: "the day's gas budget is used up",
  reverted: "it failed on the network",
  allowance: "your wallet has to allow it",
  balance: "your wallet holds too little",
}
const states = (["queued", "held", "final", "reverted"] as const).map(state => [state, stateOf(state)[1]] as const)

const columns: Column<Payout>[] = [
  { head: "Amount", width: 12, cell: row => <Money amount={row.amount} currency={row.currency} /> },
  {
    head: "State",
    width: 8,
    cell: row => (
      <>
        <Status state={row.state} why={row.heldReason} />
        {row.state === "held" && row.heldReason && (
          <div className="quiet">{heldWords[row.heldReason] ?? row.heldReason}</div>
        )}
      </>
    ),
  },
  { head: "Kind", width: 14, cell: row => payoutKinds[row.kind] },
  { head: "To", width: 12, wide: true, cell: row => <Hash value={row.recipient} /> },
  {
    head: "Transaction",
    width: 12,
    wide: true,
    cell: row =>
      row.txHash ? <Hash value={row.txHash} what="Hash" dot={false} /> : <span className="quiet">not sent yet</span>,
  },
  { head: "Network", width: 10, wide: true, isExtra: true, cell: row => networkTitle(row.chain) },
  { head: "Id", width: 14, wide: true, isExtra: true, cell: row => <Id value={row.id} /> },
  { head: "When", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Payouts() {
  const search = useSearch({ strict: false }) as PayoutsSearch
  const { kind, state } = search
  const navigate = useNavigate()
  const zone = useZone()
  const [shown, columnsMenu] = useColumns("payouts", columns)
  const query = { ...(kind ? { kind } : {}), ...(state ? { state } : {}), ...timeQuery(search, zone) }
  const go = (next: PayoutsSearch) => void navigate({ to: "/payouts", search: next as never, replace: true })
  const set = (more: Record<string, unknown>) => go({ ...search, ...more } as never)
  const list = usePages<Payout>("/api/console/payouts", query)
  const csv = pathOf({
    path: "/api/console/payouts.csv",
    query: { ...query, merchant: chosenMerchant.get() ?? undefined },
  })
  useKeys({ e: () => location.assign(csv) })
  const words = [
    kind && `the kind “${payoutKinds[kind]}”`,
    state && `the state “${stateOf(state)[1]}”`,
    timeWords(search),
  ].filter(Boolean)
  return (
    <>
      <PageHead
        title="Payouts"
        request={{ path: "/api/console/payouts", query }}
        actions={<LinkButton href={csv}>Export as CSV</LinkButton>}
      />
      <div className="chips">
        <PickChip name="Kind" choices={kinds} value={kind} set={each => set({ kind: each })} />
        <TimeChip value={search} set={set} />
        <Chips name="State" choices={states} value={state as never} set={each => set({ state: each })} />
        {columnsMenu}
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="payouts"
          columns={shown}
          list={list}
          to={({ id }) => `/payouts/${id}`}
          filtered={words.length > 0 ? { words: words.join(" and "), clear: () => go({}) } : undefined}
          empty={
            <>
              <h2>No payouts yet</h2>
              <p>Payments are sent to your wallet automatically, several together if that saves fees.</p>
              <Button component={Link} to="/payout-address">
                See where it goes
              </Button>
            </>
          }
        />
      </section>
    </>
  )
}
