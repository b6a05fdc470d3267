/**
 * Explains why an event did or did not reach its merchant's server, and the state of a payment to another server.
 * Pure.
 */
import type { DeliveryStatus } from "../../platform/db/schema.ts"
import { act, nothing, type Standing, timeText, wait } from "./standing.ts"

/** A delivery of an event. */
export interface DeliveryFacts {
  id: string
  url: string
  status: DeliveryStatus
  attempts: number
  /** Why the last attempt failed; null if no attempt failed. */
  lastError: string | null
  /** When the event is sent next; null if it is not sent again. */
  nextAt: Date | null
}

/** Explains an event of this type. */
export function explainEvent(type: string, deliveries: readonly DeliveryFacts[]): Standing {
  const worst = (["failed", "pending", "skipped"] as const)
    .map(status => deliveries.find(each => each.status === status))
    .find(each => each !== undefined)
  if (deliveries.length === 0)
    return {
      state: "unsent",
      word: "Not sent",
      why: `None of your endpoints subscribes to ${type}, so the event was not sent.`,
      next: [act("Add an endpoint for this event, or add the event to an existing endpoint.", "GET", "webhooks")],
    }
  if (!worst) {
    const count = deliveries.length
    return {
      state: "delivered",
      word: "Delivered",
      why: `Your server accepted the event${count > 1 ? `, at ${count} endpoints` : ""}.`,
      next: [nothing],
    }
  }
  return { state: worst.status, ...deliveryStanding(worst) }
}

function deliveryStanding({ id, url, status, attempts, lastError, nextAt }: DeliveryFacts): Omit<Standing, "state"> {
  const resend = act("Resend the event now.", "POST", `deliveries/${id}/resend`)
  const log = act("See each attempt and your server's answer.", "GET", `deliveries/${id}`)
  const because = lastError ? `: ${/[.!?]$/.test(lastError) ? lastError : `${lastError}.`}` : "."
  if (status === "failed")
    return {
      word: "Failed",
      why: `${url} did not accept the event in ${attempts} attempts, and it is no longer retried automatically. The last attempt failed${because}`,
      next: [log, resend],
    }
  if (status === "skipped")
    return {
      word: "Skipped",
      why: `The endpoint at ${url} was switched off, so the event was not sent.`,
      next: [act("Switch the endpoint on.", "GET", "webhooks"), resend],
    }
  if (attempts === 0)
    return {
      word: "Waiting",
      why: `The event is about to be sent to ${url}.`,
      next: [wait("You don't need to do anything.")],
    }
  const again = nextAt ? ` The next attempt is on ${timeText(nextAt)}.` : " The event is being resent now."
  return {
    word: "Retrying",
    why: `${url} has not accepted the event in ${attempts} ${attempts === 1 ? "attempt" : "attempts"}. The last attempt failed${because}${again}`,
    next: [log, resend],
  }
}
