/** The sandbox's tools: its clock, its money, its buyers. Only the sandbox has this page. */
import { Button, NativeSelect, TextInput } from "@mantine/core"
import { notifications } from "@mantine/notifications"
import { useQuery, useQueryClient } from "@tanstack/react-query"
import { useState } from "react"
import { facts } from "../api/facts.ts"
import { Failure } from "../api/failure.ts"
import { Hash } from "../ui/copy.tsx"
import { AmountInput } from "../ui/inputs.tsx"
import { PageHead } from "../ui/page.tsx"
import { Moment } from "../ui/time.tsx"

/** Beside the API: no key, no limit, this computer alone. Throws {@link Failure}. */
async function tool<T>(path: string, body: object): Promise<T> {
  const answer = await fetch(`/sandbox/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  })
  const json = await answer.json()
  if (!answer.ok) throw new Failure(answer.status, json)
  return json as T
}

const BUYERS = 5
const jumps = [
  ["1h", "1 hour"],
  ["25h", "25 hours"],
  ["7d", "7 days"],
  ["31d", "31 days"],
] as const

/** Runs a tool, and says what came of it. */
function useTool() {
  const queries = useQueryClient()
  const [busy, setBusy] = useState("")
  const run = async (name: string, work: () => Promise<string>) => {
    setBusy(name)
    try {
      notifications.show({ message: await work() })
      await queries.invalidateQueries()
    } catch (error) {
      notifications.show({ title: "That did not work", message: (error as Error).message, color: "red" })
    }
    setBusy("")
  }
  return { busy, run }
}

export function SandboxTools() {
  return (
    <>
      <PageHead title="Sandbox" />
      <p className="second lead">Test everything here with play money.</p>
      <div className="halves">
        <Pay />
        <div className="stack">
          <Clock />
          <Faucet />
          <Inbox />
        </div>
      </div>
    </>
  )
}

function Pay() {
  const { busy, run } = useTool()
  const [to, setTo] = useState("")
  const [amount, setAmount] = useState("")
  const [buyer, setBuyer] = useState("0")
  const buyers = useQuery({
    queryKey: ["sandbox", "buyers"],
    queryFn: () =>
      Promise.all(
        Array.from({ length: BUYERS }, async (_, index) => {
          const { result } = await tool<{ result: string[] }>("wallet", { method: "eth_accounts", buyer: index })
          return result[0] ?? ""
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
  })
  return (
    <section className="card pad stack" aria-label="Pay as a buyer">
      <div>
        <h2>Pay as a buyer</h2>
        <p className="quiet">Try an underpayment, an overpayment, a late or a second payment.</p>
      </div>
      <form
        className="form"
        onSubmit={event => {
          event.preventDefault()
          void run("pay", async () => {
            await tool("pay", { to: to.trim(), amount: amount.replace(",", "."), buyer: Number(buyer) })
            return `${amount} ${facts.networks[0]?.token.symbol} sent`
          })
        }}
      >
        <AmountInput label="Amount" value={amount} onChange={event => setAmount(event.currentTarget.value)} />
        <TextInput
          label="To"
          description="The receiving address of a checkout: “Paid to” on its page"
          placeholder="0x…"
          classNames={{ input: "mono" }}
          value={to}
          onChange={event => setTo(event.currentTarget.value)}
        />
        <NativeSelect
          label="From"
          data={Array.from({ length: BUYERS }, (_, i) => ({ value: String(i), label: `Buyer ${i + 1}` }))}
          value={buyer}
          onChange={event => setBuyer(event.currentTarget.value)}
        />
        <div className="row">
          <Button type="submit" variant="filled" loading={busy === "pay"} disabled={to === "" || amount === ""}>
            Send it
          </Button>
        </div>
      </form>
      <div className="stack tight rule" style={{ paddingTop: 12 }}>
        {buyers.data?.map((address, i) => (
          <div key={address} className="row between">
            <span>Buyer {i + 1}</span>
            <Hash value={address} />
          </div>
        ))}
      </div>
    </section>
  )
}

function Clock() {
  const { busy, run } = useTool()
  const [now, setNow] = useState<string | undefined>()
  return (
    <section className="card pad stack" aria-label="Clock">
      <div>
        <h2>Clock</h2>
        <p className="quiet">Moves the clock of the service and of the chain forward. The clock never goes back.</p>
      </div>
      {now && (
        <p className="second">
          It is now <Moment at={now} />.
        </p>
      )}
      <div className="row">
        {jumps.map(([advance, words]) => (
          <Button
            key={advance}
            loading={busy === advance}
            onClick={() =>
              run(advance, async () => {
                const answer = await tool<{ now: string }>("clock", { advance })
                setNow(answer.now)
                return `The clock is ${words} further`
              })
            }
          >
            {words}
          </Button>
        ))}
        <Button
          loading={busy === "mine"}
          onClick={() =>
            run("mine", async () => {
              const { blockNumber } = await tool<{ blockNumber: number }>("mine", { blocks: 10 })
              return `The chain is at block ${blockNumber}`
            })
          }
        >
          10 blocks
        </Button>
      </div>
    </section>
  )
}

function Faucet() {
  const { busy, run } = useTool()
  const [address, setAddress] = useState("")
  return (
    <section className="card pad stack" aria-label="Faucet">
      <div>
        <h2>Faucet</h2>
        <p className="quiet">Gives a wallet 1,000 test tokens, and ether for fees.</p>
      </div>
      <form
        className="form"
        onSubmit={event => {
          event.preventDefault()
          void run("faucet", async () => {
            await tool("faucet", { address: address.trim(), amount: "1000" })
            return "1,000 test tokens have arrived"
          })
        }}
      >
        <TextInput
          label="Wallet"
          placeholder="0x…"
          classNames={{ input: "mono" }}
          value={address}
          onChange={event => setAddress(event.currentTarget.value)}
        />
        <div className="row">
          <Button type="submit" loading={busy === "faucet"} disabled={address === ""}>
            Fill it
          </Button>
        </div>
      </form>
    </section>
  )
}

const Inbox = () => (
  <section className="card pad" aria-label="Inbox">
    <h2>Inbox</h2>
    <p className="quiet">
      What was sent to the sandbox's own endpoint:{" "}
      <a href="/sandbox/inbox" target="_blank" rel="noreferrer" className="plain-link">
        open the inbox
      </a>
      .
    </p>
  </section>
)
