/** Capturing and refunding: how much, what follows from it, and the allowance that the payout wallet gives. */
import { Button, Modal, TextInput } from "@mantine/core"
import { notifications } from "@mantine/notifications"
import { useState } from "react"
import { failureOf } from "../api/failure.ts"
import type { Checkout, Refund } from "../api/types.ts"
import { accountOf, sendCall, signersHere, type Wallet, walletWords } from "../api/wallet.ts"
import { Hash } from "./copy.tsx"
import { AmountInput } from "./inputs.tsx"
import { amountText } from "./money.tsx"
import { RequestId } from "./problem.tsx"
import { Time } from "./time.tsx"
import { useAct } from "./use-act.ts"

interface Given {
  checkout: Checkout
  close: () => void
}

type Escrow = NonNullable<Checkout["escrow"]>

/** What went wrong, in a dialog. */
function Fault({ error }: { error: unknown }) {
  const { message, requestId, details } = failureOf(error)
  return (
    <div className="note bad" role="alert">
      <div>{details[0] ? `${details[0].message}.`.replace(/^./, first => first.toUpperCase()) : message}</div>
      {requestId && <RequestId id={requestId} />}
    </div>
  )
}

const plain = (amount: string): string => amount.trim().replace(",", ".")

function CaptureDialog({ checkout, escrow, close }: Given & { escrow: Escrow }) {
  const { currency, chain, id } = checkout
  const [amount, setAmount] = useState(escrow.capturable)
  const capture = useAct({ isQuiet: true, done: "It is on its way to your payout address", onDone: close })
  const isAll = plain(amount) === escrow.capturable
  return (
    <Modal opened onClose={close} title="Capture reserved money" size="md">
      <form
        className="form"
        onSubmit={event => {
          event.preventDefault()
          const body = { sessionId: id, ...(isAll ? {} : { amount: plain(amount) }) }
          capture.mutate({ method: "POST", path: "/api/console/payments/capture", body })
        }}
      >
        <AmountInput
          label="Amount"
          description={`At most ${amountText(escrow.capturable)} ${currency}`}
          chain={chain}
          value={amount}
          onChange={event => setAmount(event.currentTarget.value)}
          data-autofocus
        />
        <p className="second">
          It goes to <Hash value={escrow.receiver} />.{" "}
          {isAll ? (
            "Nothing stays reserved then."
          ) : (
            <>
              The rest stays reserved: you can capture more, or release it. What is left goes back to the payer{" "}
              <Time at={escrow.captureBefore} />.
            </>
          )}
        </p>
        {capture.error ? <Fault error={capture.error} /> : null}
        <div className="row end">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" variant="filled" loading={capture.isPending} disabled={amount.trim() === ""}>
            Capture {amountText(plain(amount))} {currency}
          </Button>
        </div>
      </form>
    </Modal>
  )
}

function RefundDialog({ checkout, escrow, close }: Given & { escrow: Escrow }) {
  const { currency, chain, id, payer } = checkout
  const [amount, setAmount] = useState(escrow.refundable)
  const [reason, setReason] = useState("")
  const [made, setMade] = useState<Refund | undefined>()
  const refund = useAct<Refund>({
    isQuiet: true,
    onDone: answer => {
      if (answer.approval) return setMade(answer)
      notifications.show({ message: "The refund is on its way" })
      close()
    },
  })
  if (made) return <AllowDialog checkout={checkout} refund={made} close={close} />
  return (
    <Modal opened onClose={close} title="Refund" size="md">
      <form
        className="form"
        onSubmit={event => {
          event.preventDefault()
          const body = { sessionId: id, amount: plain(amount), ...(reason.trim() ? { reason: reason.trim() } : {}) }
          refund.mutate({ method: "POST", path: "/api/console/payments/refund", body })
        }}
      >
        <AmountInput
          label="Amount"
          description={`At most ${amountText(escrow.refundable)} ${currency}`}
          chain={chain}
          value={amount}
          onChange={event => setAmount(event.currentTarget.value)}
          data-autofocus
        />
        <TextInput
          label="Reason"
          description="For your books and your team"
          value={reason}
          onChange={event => setReason(event.currentTarget.value)}
        />
        <p className="second">
          The refund comes from your payout wallet <Hash value={escrow.receiver} />, which allows it with one
          transaction, and goes to {payer ? <Hash value={payer} /> : "the payer"}.
        </p>
        {refund.error ? <Fault error={refund.error} /> : null}
        <div className="row end">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" variant="filled" loading={refund.isPending} disabled={amount.trim() === ""}>
            Refund {amountText(plain(amount))} {currency}
          </Button>
        </div>
      </form>
    </Modal>
  )
}

/** The one transaction of the payout wallet, which covers all open refunds and nothing beyond them. */
function AllowDialog({ checkout, refund, close }: Given & { refund: Refund }) {
  const { owner = "", needed = "", allowance, call } = refund.approval ?? {}
  const [fault, setFault] = useState("")
  const [isBusy, setBusy] = useState(false)
  const wallets = signersHere()
  const allow = async (wallet: Wallet) => {
    setBusy(true)
    setFault("")
    try {
      const account = await accountOf(wallet)
      if (account.toLowerCase() !== owner.toLowerCase())
        throw new Error(`This wallet offers ${account}. Choose ${owner}, which holds the money.`)
      if (call) await sendCall(wallet, account, checkout.chainId, call as { to: string; data: string })
      notifications.show({ message: "Allowed: the refund continues automatically" })
      close()
    } catch (error) {
      setFault(walletWords(error))
    }
    setBusy(false)
  }
  return (
    <Modal opened onClose={close} title="Allow the refund with your payout wallet" size="md">
      <div className="stack">
        <p className="second">
          The refund of {amountText(refund.amount)} {refund.currency} waits. Your wallet <Hash value={owner} /> lets
          this service take exactly the sum of your open refunds, and pays a small network fee.
        </p>
        <dl className="facts card pad">
          <dt>To be allowed</dt>
          <dd>
            {amountText(needed)} {refund.currency}
          </dd>
          {allowance && (
            <>
              <dt>Allowed now</dt>
              <dd>
                {amountText(allowance)} {refund.currency}
              </dd>
            </>
          )}
        </dl>
        {wallets.length === 0 && (
          <p className="note wait">
            This browser has no wallet. The refund waits: open this payment in a browser that has your payout wallet.
          </p>
        )}
        {fault && (
          <p className="bad" role="alert">
            {fault}
          </p>
        )}
        <div className="row end">
          <Button onClick={close}>Later</Button>
          {wallets.map((wallet, i) => (
            <Button
              key={wallet.info.uuid}
              variant="filled"
              loading={isBusy}
              onClick={() => allow(wallet)}
              data-autofocus={i === 0 || undefined}
            >
              Allow with {wallet.info.name}
            </Button>
          ))}
        </div>
      </div>
    </Modal>
  )
}

/** One of the three. */
export default function EscrowDialog(given: Given & { kind: "capture" | "refund" | "allow"; refund?: Refund }) {
  const { kind, checkout, refund } = given
  if (kind === "allow") return refund ? <AllowDialog {...given} refund={refund} /> : null
  if (!checkout.escrow) return null
  const Dialog = kind === "capture" ? CaptureDialog : RefundDialog
  return <Dialog {...given} escrow={checkout.escrow} />
}
