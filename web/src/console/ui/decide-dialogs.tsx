/** The two dialogs of a decision: what it means is said before it is done. */
import { Button, Checkbox, Modal, TextInput } from "@mantine/core"
import { useState } from "react"
import { Hash } from "./copy.tsx"
import { amountText } from "./money.tsx"
import { stateOf } from "./status.tsx"
import { useAct } from "./use-act.ts"
import { type Waiting, waitingAmount } from "./waiting.ts"

const sumWords = (payments: Waiting[]): string => {
  const [first] = payments
  if (payments.length === 1 && first) return `${amountText(waitingAmount(first))} ${first.currency}`
  return `${payments.length} payments`
}

/** What the money was for, and why it waits. */
function About({ payments }: { payments: Waiting[] }) {
  const [only] = payments
  if (payments.length !== 1 || !only) return null
  const state = only.status === "granted" ? "overpaid" : (only.exception ?? only.status)
  // Another payment had used the link up: nobody has paid for this one twice.
  const why = state === "duplicate" && only.buys ? "Link used up" : stateOf(state)[1]
  return (
    <p className="row second">
      <span className="strong">{only.description ?? only.id}</span>
      <span>{why}</span>
      {only.payer && <Hash value={only.payer} />}
    </p>
  )
}

/** What accepting does: of one what it buys, of several in general. */
function acceptText(payments: Waiting[]): string {
  const [first] = payments
  if (payments.length !== 1 || !first)
    return "What nobody has paid for yet then counts as paid, and its buyer gets it. The money is paid out."
  if (first.exception === "sanctioned")
    return "This is refused while the sender is on a sanctions list. Take legal advice first."
  if (!first.buys) return "The money is paid out like that of other payments. It buys nothing more."
  const inFull = first.exception === "underpaid" ? " in full, although less was sent" : ""
  return `It counts as paid${inFull}: the buyer gets what was bought, and the money is paid out.`
}

function AcceptDialog({ payments, close }: { payments: Waiting[]; close: () => void }) {
  const accept = useAct({})
  const all = async () => {
    for (const { id } of payments) {
      try {
        await accept.mutateAsync({ method: "POST", path: `/api/console/payments/${id}/accept`, body: {} })
      } catch {
        return
      }
    }
    close()
  }
  return (
    <Modal opened onClose={close} title={`Accept ${sumWords(payments)}`} size="md">
      <div className="stack">
        <About payments={payments} />
        <p className="second">{acceptText(payments)} This can't be undone.</p>
        <div className="row end">
          <Button onClick={close}>Cancel</Button>
          <Button variant="filled" loading={accept.isPending} onClick={all} data-autofocus>
            Accept {sumWords(payments)}
          </Button>
        </div>
      </div>
    </Modal>
  )
}

const ADDRESS = /^0x[0-9a-fA-F]{40}$/

function ReturnDialog({ payments, close }: { payments: Waiting[]; close: () => void }) {
  const [first] = payments
  const [address, setAddress] = useState("")
  const [isSure, setSure] = useState(false)
  const send = useAct({ done: `${sumWords(payments)} on the way back`, onDone: close })
  const named = payments.every(({ returnAddress }) => returnAddress !== null)
  const isOther = address !== "" && address !== first?.returnAddress
  const may = (named && address === "") || (ADDRESS.test(address) && (!isOther || isSure))
  const go = () => {
    const to = address === "" ? {} : { address, ...(isOther ? { confirm: true } : {}) }
    send.mutate({ method: "POST", path: `/api/console/payments/${first?.id}/return`, body: to })
  }
  return (
    <Modal opened onClose={close} title={`Return ${sumWords(payments)}`} size="md">
      <div className="stack">
        <About payments={payments} />
        <p className="second">
          {first?.returnAddress
            ? "The payer named the address below with a signature. The money goes back to that address."
            : "The payer has named no address yet. Ask the payer where to send it: the sender may be an exchange that loses it."}
        </p>
        {first?.returnAddress && <p className="mono">{first.returnAddress}</p>}
        <TextInput
          label={first?.returnAddress ? "Another address instead" : "Send it to"}
          placeholder="0x…"
          value={address}
          classNames={{ input: "mono" }}
          error={address !== "" && !ADDRESS.test(address) ? "0x and 40 hexadecimal digits" : undefined}
          onChange={event => setAddress(event.currentTarget.value.trim())}
          data-autofocus={first?.returnAddress ? undefined : true}
        />
        {isOther && ADDRESS.test(address) && (
          <Checkbox
            checked={isSure}
            onChange={event => setSure(event.currentTarget.checked)}
            label="The payer gave me this address. Money that is sent there can't be recalled."
          />
        )}
        <div className="row end">
          <Button onClick={close}>Cancel</Button>
          <Button variant="filled" loading={send.isPending} disabled={!may} onClick={go}>
            Return {sumWords(payments)}
          </Button>
        </div>
      </div>
    </Modal>
  )
}

/** One of the two. */
export default function DecideDialog({
  kind,
  ...given
}: {
  kind: "accept" | "return"
  payments: Waiting[]
  close: () => void
}) {
  return kind === "accept" ? <AcceptDialog {...given} /> : <ReturnDialog {...given} />
}
