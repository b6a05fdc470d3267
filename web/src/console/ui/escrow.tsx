/** What can be done with reserved and captured money: capture, release, refund; and the refunds that were made. */
import { Button } from "@mantine/core"
import { useState } from "react"
import { useRight } from "../api/me.ts"
import type { Checkout, Refund } from "../api/types.ts"
import { later } from "./later.tsx"
import { Money } from "./money.tsx"
import { NoRight } from "./problem.tsx"
import { Status } from "./status.tsx"
import { isSure } from "./sure.ts"
import { Time } from "./time.tsx"
import { useAct } from "./use-act.ts"

const EscrowDialog = later(async () => (await import("./escrow-dialogs.tsx")).default)

const isSome = (amount: string | undefined): boolean => amount !== undefined && /[1-9]/.test(amount)

/** Buttons, the one that most merchants want last; none where nothing is reserved or captured. */
export function EscrowActions({ checkout }: { checkout: Checkout }) {
  const may = useRight("money")
  const [open, setOpen] = useState<"capture" | "refund" | undefined>()
  const release = useAct({ done: "It is on its way back to the payer" })
  const { escrow, id, currency } = checkout
  const canCapture = isSome(escrow?.capturable)
  const canRefund = isSome(escrow?.refundable)
  if (!escrow || (!canCapture && !canRefund)) return null
  const askRelease = async () => {
    const title = `Release ${escrow.capturable} ${currency}?`
    const words = "The money goes back to the payer's wallet, and can no longer be captured."
    if (await isSure({ title, words, yes: "Release it" }))
      release.mutate({ method: "POST", path: "/api/console/payments/void", body: { sessionId: id } })
  }
  return (
    <>
      {canRefund && (
        <Button disabled={!may} onClick={() => setOpen("refund")}>
          Refund
        </Button>
      )}
      {canCapture && (
        <>
          <Button disabled={!may} loading={release.isPending} onClick={askRelease}>
            {isSome(escrow.captured) ? "Release the rest" : "Release"}
          </Button>
          <Button disabled={!may} variant="filled" onClick={() => setOpen("capture")}>
            Capture
          </Button>
        </>
      )}
      {!may && <NoRight right="money" />}
      {open && <EscrowDialog kind={open} checkout={checkout} close={() => setOpen(undefined)} />}
    </>
  )
}

/** How much of the money is where. */
export function EscrowParts({ checkout: { escrow, currency, openCalls = [] } }: { checkout: Checkout }) {
  if (!escrow || !isSome(escrow.authorized)) return null
  const parts = [
    ["Reserved", escrow.authorized],
    ["Captured", escrow.captured],
    ["Released", escrow.released],
    ["Refunded", escrow.refunded],
    ["Can be captured", escrow.capturable],
    ["Can be refunded", escrow.refundable],
  ] as const
  return (
    <section className="card pad stack tight" aria-label="Reserved money">
      <h2>Reserved money</h2>
      <dl className="facts">
        {parts
          .filter(([name, amount]) => name === "Reserved" || isSome(amount))
          .map(([name, amount]) => (
            <div key={name} style={{ display: "contents" }}>
              <dt>{name}</dt>
              <dd>
                <Money amount={amount} currency={currency} />
              </dd>
            </div>
          ))}
        {isSome(escrow.capturable) && (
          <>
            <dt>Capture until</dt>
            <dd>
              <Time at={escrow.captureBefore} />
            </dd>
          </>
        )}
        {isSome(escrow.refundable) && (
          <>
            <dt>Refund until</dt>
            <dd>
              <Time at={escrow.refundBefore} />
            </dd>
          </>
        )}
      </dl>
      {openCalls.map(({ id, kind, amount, heldFor }) => (
        <p key={id} className="quiet">
          <Money amount={amount} currency={currency} /> {kind === "capture" ? "is being captured" : "is being released"}
          {heldFor ? `, but is held: ${heldFor}` : ""}.
        </p>
      ))}
    </section>
  )
}

/** Each refund, and what it waits for. */
export function Refunds({ checkout }: { checkout: Checkout }) {
  const may = useRight("money")
  const [allowing, setAllowing] = useState<Refund | undefined>()
  const withdraw = useAct({ done: "The refund is withdrawn" })
  const refunds = checkout.refunds ?? []
  if (refunds.length === 0) return null
  const askWithdraw = async (refund: Refund) => {
    const words = "Nothing is sent. The amount can be refunded again."
    if (await isSure({ title: `Withdraw ${refund.amount} ${refund.currency}?`, words, yes: "Withdraw" }))
      withdraw.mutate({ method: "DELETE", path: `/api/console/payments/refunds/${refund.refundId}` })
  }
  return (
    <section className="card" aria-label="Refunds">
      <div className="pad head">
        <h2>Refunds</h2>
      </div>
      {refunds.map(refund => (
        <div key={refund.refundId} className="pad rule stack tight">
          <div className="row between">
            <Money amount={refund.amount} currency={refund.currency} />
            <Status state={refund.status === "pending" ? "queued" : refund.status} />
          </div>
          {refund.reason && <p className="second">{refund.reason}</p>}
          {refund.message && <p className="quiet">{refund.message}</p>}
          <div className="row between quiet">
            <Time at={refund.createdAt} />
            {may && (refund.status === "needs_approval" || refund.status === "pending") && (
              <span className="row">
                <Button size="xs" onClick={() => askWithdraw(refund)}>
                  Withdraw
                </Button>
                {refund.approval && (
                  <Button size="xs" variant="filled" onClick={() => setAllowing(refund)}>
                    Allow it
                  </Button>
                )}
              </span>
            )}
          </div>
        </div>
      ))}
      {allowing && (
        <EscrowDialog kind="allow" checkout={checkout} refund={allowing} close={() => setAllowing(undefined)} />
      )}
    </section>
  )
}
