/** The span of a delivery attempt, in the trace of the payment that the event is about. */
import type { Context } from "../../platform/context.ts"
import { traced } from "../../platform/tracing/trace.ts"
import type { ClaimedDelivery } from "./claim-deliveries.ts"
import type { Attempt } from "./send.ts"

/** Sends inside a span, whose `traceparent` the request carries. Without a trace, it only sends. */
export const traceDelivery = (
  ctx: Context,
  { id, event_id, webhook_id, attempts, type, traceparent }: ClaimedDelivery,
  url: string,
  send: (traceparent: string | undefined) => Promise<Attempt>,
): Promise<Attempt> =>
  traceparent === null || !ctx.tracing
    ? send(undefined)
    : traced(ctx, `send ${type}`, { kind: "client", parent: traceparent }, async span => {
        const attempt = await send(span?.traceparent)
        const { hostname, port, protocol } = new URL(url)
        span?.set({
          "messaging.system": "webhook",
          "messaging.operation.name": "send",
          "messaging.operation.type": "send",
          "messaging.destination.name": type,
          "messaging.message.id": event_id,
          "http.request.method": "POST",
          "http.request.resend_count": attempts === 0 ? undefined : attempts,
          "http.response.status_code": attempt.status ?? undefined,
          // The path is left out, because a receiver's path may be its secret.
          "server.address": hostname,
          "server.port": Number.parseInt(port, 10) || (protocol === "https:" ? 443 : 80),
          "sluice.delivery.id": id,
          "sluice.webhook.id": webhook_id ?? undefined,
        })
        if (attempt.error !== null) span?.fail(attempt.status === null ? "no_answer" : `${attempt.status}`)
        return attempt
      })
