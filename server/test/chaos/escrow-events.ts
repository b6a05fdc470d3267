/** What merchants were sent about escrows after any chaos: each step once, each taken back before it comes again. */
import type { Db } from "../../src/db/open.ts"
import type { Deal } from "./escrow-play.ts"
import type { Sums } from "./escrow-verify.ts"

interface Sent {
  type: string
  data: { sequence: number; status: string; refundId?: string; amount: string; totalRefunded?: string }
}

/** What was sent of a checkout in its order, and what of it does not follow from what came before, or from the chain. */
export async function eventFaults(db: Db, { id, struck }: Deal, sums: Sums): Promise<string[]> {
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
  let [isReserved, isCompleted] = [false, false]
  steps.forEach(({ type, data: { status, sequence } }, i) => {
    say(sequence === steps[i - 1]?.data.sequence, `two events have the number ${sequence}`)
    if (type === "checkout.authorized") {
      say(isReserved, "checkout.authorized was sent twice")
      isReserved = true
    } else if (type === "checkout.session.completed") {
      say(isCompleted, "checkout.session.completed was sent twice")
      isCompleted = true
    } else if (type === "checkout.session.reversed") {
      say(!isReserved && !isCompleted, "checkout.session.reversed takes back what was never sent")
      isCompleted = false
      if (!["authorized", "voided"].includes(status)) isReserved = false
    }
  })
  say(isReserved !== sums.reserve > 0n, `its merchant believes it is ${isReserved ? "" : "not "}reserved`)
  say(isCompleted !== sums.capture > 0n, `its merchant believes it is ${isCompleted ? "" : "not "}captured`)
  const of = (type: string) => steps.filter(each => each.type === type)
  say(
    sums.capture === 0n && sums.reserve > 0n && sums.held === 0n && of("checkout.voided").length === 0,
    "checkout.voided was never sent",
  )
  const refunded = await db
    .selectFrom("refunds")
    .select("id")
    .where("session_id", "=", id)
    .where("status", "=", "succeeded")
    .execute()
  const notified = of("payment.refunded").map(({ data }) => data.refundId)
  say(new Set(notified).size !== notified.length, "payment.refunded was sent twice")
  for (const refund of refunded) say(!notified.includes(refund.id), `payment.refunded was never sent of ${refund.id}`)
  // Of a refund that a reorg removed for good, since its merchant withdrew the allowance, it was sent before.
  say(notified.length > refunded.length && !struck, "payment.refunded was sent of a refund that was none")
  return found
}
