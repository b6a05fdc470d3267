/** One payout: how much, where to, why it stands as it does, the payments inside it, and each time it was sent. */
import { useParams } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { networkTitle } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { Story } from "../api/story.ts"
import type { PayoutPart, PayoutStory } from "../api/types.ts"
import { Hash, Id } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { IdLink, Linked } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Why } from "../ui/story.tsx"
import { Moment, Time } from "../ui/time.tsx"
import { payoutKinds } from "./payouts.tsx"

const up = { to: "/payouts", name: "Payouts" }
const GWEI_DIGITS = 9

/** Gas in wei as ether, to the last digit that says something. */
function etherText(wei: string): string {
  const digits = wei.padStart(19, "0")
  const text = `${digits.slice(0, -18)}.${digits.slice(-18)}`.replace(/0+$/, "").replace(/\.$/, "")
  return `${text.slice(0, text.indexOf(".") + 1 + GWEI_DIGITS) || text} ETH`
}

type Row = PayoutPart & { id: string }

const columns: Column<Row>[] = [
  { head: "Amount", width: 12, cell: row => <Money amount={row.amount} currency={row.currency} /> },
  {
    head: "State",
    width: 8,
    cell: row => (row.status ? <Status state={row.status} /> : <span className="quiet">–</span>),
  },
  {
    head: "Payer",
    width: 12,
    cell: row => (row.payer ? <Hash value={row.payer} /> : <span className="quiet">a surplus</span>),
  },
  { head: "When", width: 8, right: true, cell: row => <Time at={row.at} /> },
]

export function OnePayout() {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `/api/console/payouts/${id}`
  const query = useLive(["payout", id], signal => read<PayoutStory>(path, {}, signal))
  const list = usePages<Row>(
    `${path}/payments`,
    {},
    row => row.paymentId ?? row.sessionId ?? `${row.txHash}${row.at}${row.baseUnits}`,
  )
  const payout = query.data
  if (!payout) return <NotYet query={query} up={up} />
  return (
    <>
      <PageHead
        of={query}
        title={`${payoutKinds[payout.kind]}: ${payout.amount} ${payout.currency}`}
        up={up}
        request={{ path }}
        head={
          <>
            <Money size="money" amount={payout.amount} currency={payout.currency} />
            <Status state={payout.state} why={payout.heldReason} />
          </>
        }
      />
      <Why story={payout as unknown as Story} tone={stateOf(payout.state)[0]} here={payout.id} />
      <div className="two">
        <div className="stack">
          <section className="card" aria-label="Payments inside it">
            <div className="pad head">
              <h2>Payments inside it</h2>
              {payout.paymentCount > 1 && <span className="quiet num">{payout.paymentCount.toLocaleString()}</span>}
            </div>
            <DataTable
              name="payments"
              columns={columns}
              list={list}
              to={row => `/payments/${row.paymentId ?? row.sessionId ?? id}`}
              empty={<p>It contains no payment.</p>}
            />
          </section>
          <Sent payout={payout} />
        </div>
        <section className="card pad" aria-label="Facts">
          <Facts
            of={[
              ["Kind", payoutKinds[payout.kind]],
              ["To", <Linked key="r" chain={payout.chain} kind="address" value={payout.recipient} />],
              ["Network", networkTitle(payout.chain)],
              payout.txHash && ["Transaction", <Linked key="h" chain={payout.chain} kind="tx" value={payout.txHash} />],
              payout.blockNumber && ["Block", Number(payout.blockNumber).toLocaleString()],
              payout.gasWei && ["Fee, paid by the service", etherText(payout.gasWei)],
              ["Made", <Time key="c" at={payout.createdAt} />],
              payout.minedAt && ["In a block", <Time key="m" at={payout.minedAt} />],
              payout.replaces && ["In place of", <IdLink key="l" to="/payouts" id={payout.replaces} />],
              ["Id", <Id key="i" value={payout.id} />],
            ]}
          />
        </section>
      </div>
    </>
  )
}

/** Each transaction that was signed for it; the later ones pay a higher fee. */
function Sent({ payout: { log, minedAt, blockNumber, state } }: { payout: PayoutStory }) {
  if (log.length === 0) return null
  return (
    <section className="card pad stack">
      <h2>How it was sent</h2>
      <ol className="story">
        {log.map(({ n, txHash, signedAt, sentAt, sends, result }) => (
          <li key={txHash}>
            <i className={result === "reverted" ? "bad" : sentAt ? "good" : ""} />
            <div>
              Transaction {n + 1}{" "}
              {sentAt ? `was handed to the network${sends > 1 ? `, ${sends} times` : ""}` : "was signed"}
              {result === "reverted" ? ", and failed there" : ""}.
            </div>
            <div className="quiet row" style={{ gap: 8 }}>
              <Moment at={sentAt ?? signedAt} />
              <Hash value={txHash} what="Hash" dot={false} />
            </div>
          </li>
        ))}
        {minedAt && (
          <li>
            <i className="good" />
            <div>It is in block {Number(blockNumber).toLocaleString()}.</div>
            <div className="quiet">
              <Moment at={minedAt} />
            </div>
          </li>
        )}
        {state === "final" && (
          <li>
            <i className="good" />
            <div>That block is final: the payout can't be reversed.</div>
          </li>
        )}
      </ol>
    </section>
  )
}
