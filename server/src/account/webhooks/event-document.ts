/** The event requests that the service sends, for the API document. */
import { Type } from "typebox"
import { Described, Timestamp } from "../../platform/http/schemas.ts"
import { exampleOf } from "./event-examples.ts"
import { dataSchemas } from "./events.ts"
import { type EventType, eventTypes, isUnconditional, namedEvents, reversalEvents, standardEvents } from "./webhook.ts"

const summaries: Record<EventType, string> = {
  "checkout.session.completed":
    "A payment was verified on chain; sent again, as a new event, when it was reversed and came back",
  "payment.refunded":
    "A refund of a payment through escrow succeeded, full or partial; sent once for each refund, when it is mined",
  "subscription.renewal.created": "The invoice and checkout session of a renewal were created",
  "payment.exception":
    "Money that was paid waits for a decision: it is too little, too much, late, a second time, in another token, of a sanctioned sender, or at a paywall of a sender that nobody is (what is minted). Sent again when it waits for another reason or with another amount, and when the chain removed it and it is back, which can be under another id; and when its return failed or was cancelled, so that it waits again. Where more than twenty payments of one session or paywall begin to wait at once, it is sent for those of most money",
  "subscription.past_due": "An invoice was not paid three days after it was due, and access ended",
  "subscription.canceled": "A subscription ended: as somebody asked, unpaid for 30 days, or after its last period",
  "subscription.resumed": "A subscription runs again after a pause, or after a late payment",
  "checkout.confirmed": "A payment was verified on chain",
  "checkout.failed": "A transaction failed or was not valid",
  "checkout.expired": "A session timed out without a payment",
  "checkout.authorized": "Funds were reserved",
  "checkout.voided": "An authorization was released without capture",
  "checkout.session.reversed":
    "The chain removed the transfer of a completed payment: do not deliver, or stop delivering. With a `refundId` it removed that refund, and no payment. The reversal of a refund, a void or a reservation alone is sent only to whoever was sent what it takes back",
  "paywall.granted": "A payment granted access to a paywall; sent again when it was reversed and came back",
  "paywall.reversed": "The chain removed the transfer of a payment, and its access ended with it",
  "settings.payout_address_changed":
    "Somebody changed the address that receives the merchant's money; in live mode this takes effect after 24 hours",
  "settings.split_changed": "Somebody changed who is paid: a split, or what a split is attached to",
  "settings.webhook_changed":
    "Somebody added, moved, paused or deleted an endpoint, changed its events or rolled a secret: its owner may not receive notice of later changes, and others may",
  ping: "Tries an endpoint",
}

const who = (type: EventType): string =>
  standardEvents.some(each => each === type)
    ? "Sent to endpoints that subscribe to it by name or by `*`."
    : namedEvents.some(each => each === type)
      ? "Sent only to endpoints that subscribe to it by name; `*` does not include it."
      : reversalEvents.some(each => each === type)
        ? "Sent to everyone who was sent the event that it reverses (a `callbackUrl`, `*`, or an endpoint that named that event), and to endpoints that subscribe to it by name or by `*`."
        : isUnconditional(type)
          ? "Sent to every endpoint that is not paused, at the address it has at that moment, whatever happens to the endpoint later. An endpoint that is paused, deleted or moved is itself notified at its old address."
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
  header("traceparent", "Of the attempt, where the service is traced (W3C Trace Context); not signed", false),
]

/** The schema of an event's whole body. */
const bodySchema = (type: EventType) =>
  Type.Object({
    id: Described(Type.String(), "The event's id, `evt_…`"),
    event: Type.Literal(type),
    createdAt: Timestamp,
    test: Type.Optional(
      Type.Literal(true, { description: "It is an example that somebody asked for: nothing of it happened" }),
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
