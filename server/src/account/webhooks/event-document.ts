/** The event requests that the service sends, for the API document. */
import { Type } from "typebox"
import { Described, Timestamp } from "../../platform/http/schemas.ts"
import { exampleOf } from "./event-examples.ts"
import { dataSchemas } from "./events.ts"
import { type EventType, eventTypes, isUnconditional, namedEvents, reversalEvents, standardEvents } from "./webhook.ts"

const summaries: Record<EventType, string> = {
  "checkout.session.completed":
    "A payment was verified on chain; sent again as a new event if the payment was reversed and came back",
  "payment.refunded": "A full or partial refund of an escrow payment succeeded; sent once per refund, when it is mined",
  "subscription.renewal.created": "The invoice and checkout session of a renewal were created",
  "payment.exception":
    "A payment waits for a decision. It is too small, too large, late, a duplicate, in another token, from a sanctioned sender, or minted straight to a paywall, so without a sender. Sent again if the reason or the amount changes, if a reorg removed the payment and it came back (possibly with another id), and if its return failed or was cancelled. If more than twenty payments of one session or paywall start waiting at the same time, the event is sent only for the largest ones",
  "subscription.past_due": "An invoice was not paid three days after it was due, and access ended",
  "subscription.canceled": "A subscription ended: on request, after 30 unpaid days, or after its last period",
  "subscription.resumed": "A subscription is active again after a pause or a late payment",
  "checkout.confirmed": "A payment was verified on chain",
  "checkout.failed": "A transaction failed or was not valid",
  "checkout.expired": "A session timed out without a payment",
  "checkout.authorized": "Funds were reserved",
  "checkout.voided": "An authorization was released without capture",
  "checkout.session.reversed":
    "A reorg removed the transfer of a completed payment: do not deliver, or stop delivering. With a `refundId`, it removed that refund and no payment. If only a refund, a void or a reservation is reversed, the event goes only to receivers of the event that it reverses",
  "paywall.granted": "A payment granted access to a paywall; sent again if the payment was reversed and came back",
  "paywall.reversed": "A reorg removed the transfer of a payment, so its access ended",
  "settings.payout_address_changed":
    "The address that receives the merchant's money was changed; in live mode the change takes effect after 24 hours",
  "settings.split_changed": "A split was changed, or attached to or removed from an object",
  "settings.webhook_changed":
    "An endpoint was added, moved, paused or deleted, its events were changed, or a secret was rolled. The endpoint's owner may not be notified of later changes, and others may",
  ping: "Tries an endpoint",
}

const who = (type: EventType): string =>
  standardEvents.some(each => each === type)
    ? "Sent to endpoints that subscribe to it by name or by `*`."
    : namedEvents.some(each => each === type)
      ? "Sent only to endpoints that subscribe to it by name; `*` does not include it."
      : reversalEvents.some(each => each === type)
        ? "Sent to every receiver of the event that it reverses (a `callbackUrl`, `*`, or an endpoint that named that event), and to endpoints that subscribe to it by name or by `*`."
        : isUnconditional(type)
          ? "Sent to every endpoint that is not paused, at its current address, whatever happens to the endpoint later. An endpoint that is paused, deleted or moved is notified at its old address."
          : "Sent at registration (signed with a secret that the receiver can't know yet) and by `POST …/test`."

const header = (name: string, description: string, required = true) => ({
  name,
  in: "header",
  required,
  description,
  schema: { type: "string" },
})

const parameters = [
  header("Idempotency-Key", "The delivery's id, the same in each attempt"),
  header(
    "Service-Signature",
    "`t=<Unix seconds>,v1=<hex>`: HMAC-SHA256 of `<t>.<body>` under the whole secret; while a rolled secret is still valid, one `v1` for each",
  ),
  header("x-service-signature", "`sha256=<hex>`: HMAC-SHA256 of the body under the whole secret"),
  header("webhook-id", "The event's id (Standard Webhooks)"),
  header("webhook-timestamp", "Unix seconds (Standard Webhooks)"),
  header("webhook-signature", "`v1,<base64>`, space-separated (Standard Webhooks)"),
  header("traceparent", "The attempt's trace, if the service is traced (W3C Trace Context); not signed", false),
]

/** The schema of an event's whole body. */
const bodySchema = (type: EventType) =>
  Type.Object({
    id: Described(Type.String(), "The event's id, `evt_…`"),
    event: Type.Literal(type),
    createdAt: Timestamp,
    test: Type.Optional(
      Type.Literal(true, { description: "This is an example that was requested: nothing in it happened" }),
    ),
    data: dataSchemas[type],
  })

/** Every event: its name, when it is sent and to whom, its body's schema, and an example. */
export const eventCatalogue = eventTypes.map(type => ({
  type,
  summary: summaries[type],
  recipients: who(type),
  schema: JSON.parse(JSON.stringify(bodySchema(type))) as Record<string, unknown>,
  example: exampleOf(type) as Record<string, unknown>,
}))

/** The `webhooks` of the OpenAPI document. */
export const webhookDocument = Object.fromEntries(
  (Object.keys(dataSchemas) as EventType[]).map(type => [
    type,
    {
      post: {
        summary: summaries[type],
        description: who(type),
        parameters,
        requestBody: {
          required: true,
          content: {
            "application/json": {
              schema: bodySchema(type),
              example: exampleOf(type),
            },
          },
        },
        responses: {
          "2XX": { description: "Received. The body is ignored." },
          "410": { description: "The receiver wants no more events: the service deactivates the webhook." },
          default: { description: "Retried after 1 and 5 minutes, half an hour, 2 and 8 hours." },
        },
      },
    },
  ]),
)
