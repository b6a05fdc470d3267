/** What merchants were sent about escrows after any chaos: each step once, each taken back before it comes again. */
import type { Db } from "../../src/platform/db/open.ts"
import type { Deal } from "./escrow-play.ts"
import type { Sums } from "./escrow-verify.ts"

interface Sent {
  type: string
  data: { sequence: number; status: string; refundId?: string; amount: string; totalRefunded?: string }
}

/** What was sent of a checkout in its order, and what of it does not follow from what came before, or from the chain. */
export async function eventFaults(db: Db, { id }: Deal, sums: Sums): Promise<string[]> {
  const rows = await db
    .selectFrom("events")
    .select(["type", "body"])
    .where("body", "like", `%"sessionId":"${id}"%`)
    .execute()
  const sent = rows.map(({ type, body }): Sent => ({ type, data: JSON.parse(body).data }))
  // A completion is sent under two names.
  const steps = sent
    .filter(({ type }) => type !== "checkout.confirmed")
    .sort((a, b) => a.data.sequence - b.data.sequence)
  const found: string[] = []
  const say = (wrong: boolean, words: string) => void (wrong && found.push(words))
  let isReserved = false
  let isCompleted = false
  let isVoided = false
  const notified = new Set<string>()
  steps.forEach(({ type, data: { status, sequence, refundId } }, i) => {
    say(sequence === steps[i - 1]?.data.sequence, `two events have the number ${sequence}`)
    if (type === "checkout.authorized") {
      say(isReserved, "checkout.authorized was sent twice")
      isReserved = true
    } else if (type === "checkout.session.completed") {
      say(isCompleted, "checkout.session.completed was sent twice")
      isCompleted = true
      isVoided = false
    } else if (type === "checkout.voided") {
      say(isVoided, "checkout.voided was sent twice")
      isVoided = true
    } else if (type === "payment.refunded" && refundId) {
      say(notified.has(refundId), "payment.refunded was sent twice")
      notified.add(refundId)
    } else if (type === "checkout.session.reversed" && refundId) {
      say(!notified.delete(refundId), "checkout.session.reversed takes back a refund of which nothing was sent")
    } else if (type === "checkout.session.reversed") {
      say(!isReserved && !isCompleted, "checkout.session.reversed takes back what was never sent")
      if (status !== "voided") isVoided = false
      isCompleted = false
      if (!["authorized", "voided"].includes(status)) isReserved = false
    }
  })
  say(isReserved !== sums.reserve > 0n, `its merchant believes it is ${isReserved ? "" : "not "}reserved`)
  say(isCompleted !== sums.capture > 0n, `its merchant believes it is ${isCompleted ? "" : "not "}captured`)
  const isReleased = sums.capture === 0n && sums.reserve > 0n && sums.held === 0n
  say(isVoided !== isReleased, `its merchant believes it is ${isVoided ? "" : "not "}voided`)
  const refunded = await db
    .selectFrom("refunds")
    .select("id")
    .where("session_id", "=", id)
    .where("status", "=", "succeeded")
    .execute()
  for (const refund of refunded)
    say(!notified.delete(refund.id), `its merchant believes that ${refund.id} failed, and it succeeded`)
  for (const id of notified) say(true, `its merchant believes that ${id} succeeded, and it failed`)
  return found
}
