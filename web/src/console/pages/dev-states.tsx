/** Every part in every state, for the pictures and for whoever changes them. Only the sandbox has this page. */
import { Button } from "@mantine/core"
import { useRouter } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { devStates } from "../api/dev-state.ts"
import { Failure } from "../api/failure.ts"
import type { Transaction } from "../api/types.ts"
import { Hash, Id } from "../ui/copy.tsx"
import { DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { NoRight, Problem } from "../ui/problem.tsx"
import { Share } from "../ui/share.tsx"
import { Status } from "../ui/status.tsx"
import { Happened, Why } from "../ui/story.tsx"
import { Time } from "../ui/time.tsx"
import type { Listed } from "../ui/use-list.ts"
import { moneyColumns, toPayment } from "./payments.tsx"

const NOON = Date.UTC(2026, 0, 31, 12)
const HASH = `0x${"3f".repeat(31)}a7`

const rowOf = (i: number, more: Partial<Transaction> = {}): Transaction => ({
  id: `pay_${String(i).padStart(24, "0")}`,
  type: "payment",
  status: "granted",
  exception: null,
  amount: `${(i * 7919) % 900}.${String((i * 37) % 100).padStart(2, "0")}`,
  currency: "USDC",
  currencyVerified: true,
  token: `0x${"a1".repeat(20)}`,
  decimals: 6,
  chain: "base-sepolia",
  txHash: `0x${(i * 104_729).toString(16).padStart(64, "5")}`,
  payer: `0x${(i * 15_485_863).toString(16).padStart(40, "9")}`,
  recipient: null,
  paywallId: null,
  sessionId: "cs_tz4a98xxat96iws9zmbrgj3a",
  bundleId: null,
  description: `Order ${1000 + i}`,
  paymentId: null,
  value: null,
  createdAt: new Date(NOON - i * 60_000).toISOString(),
  ...more,
})

const listOf = (rows: Transaction[] | undefined, more: Partial<Listed<Transaction>> = {}): Listed<Transaction> => ({
  rows,
  total: rows?.length ?? 0,
  isLeast: false,
  waiting: 0,
  show: () => undefined,
  fresh: new Set(),
  more: undefined,
  isLoadingMore: false,
  error: null,
  asOf: NOON,
  retry: () => undefined,
  hold: () => undefined,
  ...more,
})

const failureWith = (status: number, error: string, message: string) =>
  new Failure(status, { error, message, requestId: "9d1f0a34-8c1d-4f0a-b7f2-3b1de04c2a10" })
const down = failureWith(500, "INTERNAL_ERROR", "Something went wrong on our side. Try again.")
const forbidden = failureWith(403, "ROLE_REQUIRED", "Your role here, viewer, does not allow this.")

const odd = [
  rowOf(1, { amount: "1000000.000001", description: "A".repeat(200) }),
  rowOf(2, { description: "طلب رقم ١٠٠١: ثلاثة كتب", status: "open", exception: "underpaid" }),
  rowOf(3, { description: `<img src=x onerror="window.pwned=1">`, status: "reversed" }),
  rowOf(4, {
    currency: "0xdAC17F958D2ee523a2206206994597C13D831ec7",
    currencyVerified: false,
    exception: "wrong_asset",
    status: "open",
  }),
  rowOf(5, { payer: null, txHash: null, status: "queued", type: "sweep", description: null }),
]

const states = [
  "granted",
  "open",
  "returned",
  "reversed",
  "authorized",
  "voided",
  "refunded",
  "queued",
  "held",
  "mined",
  "final",
  "reverted",
  "pending",
  "verifying",
  "expired",
  "underpaid",
  "overpaid",
  "late",
  "duplicate",
  "wrong_asset",
  "sanctioned",
  "delivered",
  "retrying",
  "failed",
  "skipped",
  "on",
  "off",
  "failing",
]

const story = {
  data: [
    { at: new Date(NOON).toISOString(), kind: "created", text: "The checkout was made.", txHash: null, object: null },
    {
      at: new Date(NOON + 9_000).toISOString(),
      kind: "needs_decision",
      text: `14.90 USDC from 0x${"9c".repeat(20)} needed your decision.`,
      txHash: HASH,
      object: null,
    },
    {
      at: new Date(NOON + 11_000).toISOString(),
      kind: "delivery",
      text: "https://shop.example/hooks did not take the event in 7 attempts: the answer 500",
      txHash: null,
      object: "dlv_tz4a98xxat96iws9zmbrgj3a",
    },
  ],
  status: {
    state: "open",
    word: "Needs you",
    why: "The payer sent 14.90 USDC, which is less than the price of 19.90 USDC.",
    next: [{ text: "Accept it: it then counts as paid in full.", route: null }],
  },
}

const empty = (
  <>
    <h2>No payments yet</h2>
    <p>A payment appears here a second after its transfer is in a block.</p>
    <Button variant="filled">Create the first checkout</Button>
  </>
)

export function DevStates() {
  const table = (list: Listed<Transaction>, more: object = {}) => (
    <div className="card">
      <DataTable name="payments" columns={moneyColumns} list={list} to={toPayment} empty={empty} {...more} />
    </div>
  )
  return (
    <>
      <PageHead title="States" />
      <div className="stack">
        <State name="Every page in every state">
          <PagesInStates />
        </State>
        <State name="Table: loading">{table(listOf(undefined))}</State>
        <State name="Table: rows, with odd texts">{table(listOf(odd, { fresh: new Set([odd[0]?.id ?? ""]) }))}</State>
        <State name="Table: new rows wait">{table(listOf([rowOf(6), rowOf(7)], { waiting: 3 }))}</State>
        <State name="Table: more than a page">
          {table(listOf([rowOf(8)], { total: 10_000, isLeast: true, more: () => undefined }))}
        </State>
        <State name="Table: empty">{table(listOf([]))}</State>
        <State name="Table: filtered, empty">
          {table(listOf([]), { filtered: { words: "the state “Reversed by the chain”", clear: () => undefined } })}
        </State>
        <State name="Table: failed">{table(listOf(undefined, { error: down }))}</State>
        <State name="Table: failed again, old rows stay">{table(listOf([rowOf(9), rowOf(10)], { error: down }))}</State>
        <State name="Table: no right">{table(listOf(undefined, { error: forbidden }))}</State>
        <State name="Table: 10,000 rows">
          <LongTable />
        </State>
        <State name="Problem">
          <div className="card">
            <Problem error={new Failure(0, {})} retry={() => undefined} />
          </div>
        </State>
        <State name="No right">
          <div className="row">
            <Button disabled>Accept</Button>
            <NoRight right="money" />
          </div>
        </State>
        <State name="Every state">
          <div className="row">
            {states.map(state => (
              <Status key={state} state={state} />
            ))}
          </div>
        </State>
        <State name="Money">
          <div className="stack">
            <Money size="total" amount="48210.55" currency="USDC" />
            <Money size="money" amount="14.90" of="19.90" currency="USDC" />
            <Money amount="0.000001" currency="USDC" />
          </div>
        </State>
        <State name="Hashes and times">
          <div className="row">
            <Hash value={`0x${"9c".repeat(20)}`} />
            <Hash value={HASH} dot={false} what="Hash" />
            <Id value="pay_tz4a98xxat96iws9zmbrgj3a" />
            <Time at={new Date(NOON).toISOString()} />
          </div>
        </State>
        <State name="Why, in each tone">
          <div>
            {(["wait", "bad", "good", "info"] as const).map(tone => (
              <Why key={tone} story={story} tone={tone} />
            ))}
          </div>
        </State>
        <State name="Story: told, loading, failed">
          <div className="card pad stack">
            <Happened story={story} error={null} />
            <Happened story={undefined} error={null} />
            <Happened story={undefined} error={down} />
          </div>
        </State>
        <State name="Facts and sharing">
          <div className="two">
            <div className="card pad">
              <Facts
                of={[
                  ["For", "A".repeat(120)],
                  ["Payer", <Hash key="p" value={`0x${"9c".repeat(20)}`} />],
                ]}
              />
            </div>
            <Share url="https://pay.example/p/support-the-radio" embed="<a>" />
          </div>
        </State>
        <State name="Buttons">
          <div className="row">
            <Button variant="filled">The one action</Button>
            <Button>Another</Button>
            <Button className="plain" variant="subtle">
              Copy as curl
            </Button>
            <Button disabled>Disabled</Button>
            <Button loading>Busy</Button>
          </div>
        </State>
      </div>
    </>
  )
}

const MANY = 10_000

function LongTable() {
  const isWanted = new URLSearchParams(location.search).has("many")
  const rows = isWanted ? Array.from({ length: MANY }, (_, i) => rowOf(i + 100)) : []
  if (!isWanted) return <a href="?many=1">Show them</a>
  return (
    <div className="card">
      <DataTable name="payments" columns={moneyColumns} list={listOf(rows)} to={toPayment} empty={empty} />
    </div>
  )
}

/** Any id does where the answer is made up. */
const ANY_ID = "any"

/** Each page as it is while the API answers so (`api/dev-state.ts`). What is "empty" or "stale" has to be there first. */
function PagesInStates() {
  const paths = Object.keys(useRouter().routesByPath).sort()
  return (
    <div className="card scroll">
      <table className="list">
        <tbody>
          {paths.map(path => (
            <tr key={path}>
              <td className="mono">{path}</td>
              {devStates
                .filter(state => !path.includes("$") || (state !== "empty" && state !== "stale"))
                .map(state => (
                  <td key={state}>
                    <a href={`/console${path.replace("$id", ANY_ID)}?dev=${state}`}>{state}</a>
                  </td>
                ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function State({ name, children }: { name: string; children: ReactNode }) {
  return (
    <section className="stack tight" aria-label={name}>
      <h2 className="label">{name}</h2>
      {children}
    </section>
  )
}
