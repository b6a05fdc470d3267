/** Formats a delivery: as a line for people, or with all its facts as JSON. */
import { styleText } from "node:util"
import { printable } from "../output.ts"
import type { Result } from "./forward.ts"
import type { Pulled } from "./pull-deliveries.ts"

interface Manner {
  isJson: boolean
  /** Whether the body is shown too. */
  hasBody: boolean
  /** Whether the receiver may already have received the delivery. */
  isRepeat: boolean
}

/** What is shown about a delivery and its result. */
export function shownOf(pulled: Pulled, result: Result, { isJson, hasBody, isRepeat }: Manner): object | string {
  const { deliveryId, attempt, event, callbackUrl, headers } = pulled
  const { status, error, durationMs } = result
  const eventId = headers["webhook-id"] ?? null
  const body = hasBody ? Buffer.from(pulled.body, "base64").toString("utf8") : undefined
  if (isJson) {
    const facts = { event, eventId, deliveryId, attempt, repeat: isRepeat, callbackUrl, durationMs }
    return {
      ...facts,
      ...(status === undefined ? {} : { status }),
      ...(error ? { error } : {}),
      ...(hasBody ? { headers, body } : {}),
    }
  }
  const isDone = status !== undefined && status < 300 && error === undefined
  const end = [status, error].filter(part => part !== undefined).join(" ")
  const notes = [
    isRepeat ? "repeat" : "",
    attempt > 1 ? `attempt ${attempt}` : "",
    callbackUrl === null ? "" : `copy of ${callbackUrl}`,
  ].filter(note => note !== "")
  const text = [
    styleText("dim", new Date().toISOString().slice(11, 19), { stream: process.stdout }),
    event.padEnd(26),
    eventId,
    styleText(isDone ? "green" : "red", printable(end), { stream: process.stdout }),
    `${durationMs} ms`,
    ...(notes.length > 0 ? [`(${printable(notes.join(", "))})`] : []),
  ].join("  ")
  return body === undefined ? text : `${text}\n${body}`
}
