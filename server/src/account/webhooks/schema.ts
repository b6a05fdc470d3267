/** The wire contract of webhooks, their deliveries and events. */
import { type Static, Type } from "typebox"
import { Described, ListEnd, Matching, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import { eventTypes, STATS_AT_MOST, subscribable } from "./webhook.ts"

/** One schema for a list of words, so that a single error names all of them. */
const Words = <const T extends readonly string[]>(words: T, description: string) =>
  Type.Unsafe<T[number]>({ type: "string", enum: words, description })

const Url = Type.String({
  minLength: 1,
  maxLength: 2_048,
  description: "An https address that is publicly reachable; outside live mode http is allowed",
})
const Subscriptions = Type.Array(Words(subscribable, "An event's name, or `*`"), {
  minItems: 1,
  maxItems: 50,
  description:
    "The events to send. `*` stands for checkout.session.completed, payment.refunded and subscription.renewal.created, and for the reversals checkout.session.reversed and paywall.reversed. Name all other events",
})
const Description = Nullable(Type.String({ maxLength: 2_000 }))
/** The route checks that the date exists. */
const Since = Matching(
  "^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,9})?)?(Z|[+-]\\d\\d:\\d\\d))?$",
  "A time in ISO 8601 such as 2026-01-31T12:00:00Z",
  { maxLength: 40 },
)

export const WebhookId = Type.Object({ id: Type.String({ description: "The webhook's id" }) })
export const DeliveryId = Type.Object({ id: Type.String({ description: "The delivery's id" }) })

export const EXAMPLE_URL = "https://shop.example/webhooks"

export const WebhookCreate = Strict(
  { url: Url, events: Subscriptions, description: Type.Optional(Description) },
  { url: EXAMPLE_URL, events: ["*"] },
)
export type WebhookCreate = Static<typeof WebhookCreate>

export const WebhookChange = Strict(
  {
    url: Type.Optional(Url),
    events: Type.Optional(Subscriptions),
    active: Type.Optional(
      Type.Boolean({ description: "false pauses the endpoint: events are stored as skipped deliveries" }),
    ),
    description: Type.Optional(Description),
  },
  { events: ["*", "paywall.granted"], active: true },
)
export type WebhookChange = Static<typeof WebhookChange>

const WEBHOOK_ID = "^c[a-z0-9]{24}$"
const ENDPOINT_ID = "^(c|lsn_)[a-z0-9]{24}$"
const listed = {
  id: Type.String({ pattern: WEBHOOK_ID }),
  url: Type.String(),
  events: Type.Array(Type.String()),
  active: Type.Boolean(),
  createdAt: Timestamp,
}

const Secret = Type.String({ pattern: "^whsec_", description: "Shown only here" })

export const WebhookCreated = Type.Object({
  data: Type.Object({
    id: listed.id,
    url: listed.url,
    secret: Secret,
    events: listed.events,
    active: listed.active,
  }),
})
export const WebhookList = Type.Object({
  data: Type.Object({ webhooks: Type.Array(Type.Object(listed)) }),
  ...ListEnd,
})
export const WebhookWhole = Type.Object({
  data: Type.Object({
    ...listed,
    merchantId: Type.String(),
    description: Nullable(Type.String()),
    disabledReason: Described(
      Nullable(Type.String()),
      "Why the service deactivated it: `gone` (it answered 410) or `failing` (every attempt failed for five days)",
    ),
    updatedAt: Timestamp,
  }),
})
export const Success = Type.Object({ data: Type.Object({ success: Type.Literal(true) }) })
export const SecretRolled = Type.Object({
  data: Type.Object({
    id: Type.String(),
    secret: Secret,
    previousExpiresAt: Described(Timestamp, "When the previous secret stops signing"),
  }),
})
export const AccountSecretRevealed = Type.Object({ data: Type.Object({ webhookSecret: Secret }) })
export const AccountSecretRolled = Type.Object({
  data: Type.Object({ webhookSecret: Secret, previousExpiresAt: Timestamp }),
})

export const WebhookTest = Strict(
  {
    event: Type.Optional(
      Words(
        eventTypes,
        "The event whose example is sent, as `GET /api/console/event-types` shows it; a `ping` if left out",
      ),
    ),
  },
  { event: "checkout.session.completed" },
)

export const EventTypeList = Type.Object({
  data: Type.Array(
    Type.Object({
      type: Words(eventTypes, "Its name"),
      summary: Described(Type.String(), "When it is sent"),
      recipients: Described(Type.String(), "Who gets it"),
      schema: Described(Type.Record(Type.String(), Type.Unknown()), "The JSON Schema of the whole body"),
      example: Described(Type.Record(Type.String(), Type.Unknown()), "A body that the schema accepts"),
    }),
  ),
})

export const StatsQuery = Type.Object({
  by: Type.Optional(
    Words(["hour", "day"] as const, "`hour` (the default) for the last 48 hours; `day` for the last 30 days"),
  ),
})
export const WebhookStats = Type.Object({
  data: Type.Object({
    by: Words(["hour", "day"] as const, "The length of a period"),
    since: Described(
      Timestamp,
      `Earlier deliveries are not counted. The start of the first period, or later if there are more than ${STATS_AT_MOST.toLocaleString("en")} deliveries since then`,
    ),
    periods: Type.Array(
      Type.Object({
        from: Described(Timestamp, "The start of the period, in UTC"),
        delivered: Type.Integer({ description: "Deliveries created in the period that arrived" }),
        failed: Type.Integer(),
        pending: Type.Integer({ description: "Deliveries that are due, or wait for their next attempt" }),
        skipped: Type.Integer(),
        attempts: Type.Integer({ description: "All attempts of these deliveries, up to the newest 100 per delivery" }),
        p50Ms: Described(Nullable(Type.Integer()), "The median time of an attempt; null without attempts"),
        p95Ms: Nullable(Type.Integer({ description: "The 95th percentile of the attempts' times" })),
      }),
      { description: "Oldest first, including periods in which nothing was sent" },
    ),
  }),
})

export const Recover = Strict({ since: Since }, { since: "2026-01-31T12:00:00Z" })
export const Recovered = Type.Object({
  data: Type.Object({
    recovered: Type.Integer({ description: "How many deliveries are resent, oldest first" }),
    more: Type.Boolean({ description: "Whether deliveries remain because time ran out: send the request again" }),
  }),
})

const statuses = ["pending", "delivered", "failed", "skipped"] as const

const delivery = {
  id: Type.String({ pattern: idPattern("dlv") }),
  eventId: Type.String({ pattern: idPattern("evt") }),
  event: Type.String(),
  webhookId: Described(Nullable(Type.String()), "null for a delivery to a `callbackUrl`"),
  sessionId: Described(Nullable(Type.String()), "The checkout, or the paywall's payment, that the event is about"),
  url: Described(Type.String(), "`listener:` and its id for a delivery to a listener"),
  status: Words(statuses, "skipped: its webhook was paused, or its listener ended"),
  attempts: Type.Integer({ description: "Attempts since it was created or last resent manually" }),
  nextAttemptAt: Described(Nullable(Timestamp), "null if nothing is planned, or while it is being sent"),
  createdAt: Timestamp,
  updatedAt: Timestamp,
}
export const DeliveryList = Type.Object({ data: Type.Array(Type.Object(delivery)), ...ListEnd })
export const Delivery = Type.Object({ data: Type.Object(delivery) })
export const DeliveryWhole = Type.Object({
  data: Type.Object({
    ...delivery,
    log: Type.Array(
      Type.Object({
        at: Timestamp,
        durationMs: Type.Integer(),
        status: Nullable(Type.Integer({ description: "The HTTP status of the answer; null if there was none" })),
        error: Nullable(Type.String({ description: "Why the attempt failed" })),
        answer: Nullable(Type.String({ description: "The first 4 KB of the answer" })),
        headers: Described(
          Nullable(Type.Record(Type.String(), Type.String())),
          "The request that was sent, with only the first 8 characters of each signature, to compare with your own; null if nothing was sent, and for deliveries that a listener pulled",
        ),
      }),
      { description: "The newest 100 attempts, oldest first" },
    ),
  }),
})

export const WebhookDeliveryFilters = Type.Object({
  status: Type.Optional(Words(statuses, "Filter by status")),
  event: Type.Optional(Words(eventTypes, "Filter by event type")),
})
export const DeliveryFilters = Type.Object({
  ...WebhookDeliveryFilters.properties,
  eventId: Type.Optional(
    Described(Matching(idPattern("evt"), "The id of an event, `evt_` and 24 characters"), "Filter by event"),
  ),
  webhookId: Type.Optional(Described(Matching(ENDPOINT_ID, "The id of a webhook or a listener"), "Filter by endpoint")),
  sessionId: Type.Optional(
    Described(
      Matching("^(cs|pay)_[a-z0-9]{24}$", "The id of a checkout or of a payment"),
      "Filter by the checkout or payment it is about",
    ),
  ),
  destination: Type.Optional(
    Words(
      ["webhook", "callback"] as const,
      "Only deliveries to registered endpoints, or only deliveries to `callbackUrl`s",
    ),
  ),
  since: Type.Optional(Described(Since, "Only deliveries created at this time or later, in ISO 8601")),
  until: Type.Optional(Described(Since, "Only deliveries created before this time, in ISO 8601")),
})
export type DeliveryFilters = Static<typeof DeliveryFilters>
export const EventFilters = Type.Object({
  type: Type.Optional(Words(eventTypes, "Filter by event type")),
  since: Type.Optional(Since),
  object: Type.Optional(
    Matching(
      "^(cs|pay|sub)_[a-z0-9]{24}$",
      "The id of the checkout, payment or subscription that the events are about",
    ),
  ),
})
const event = Type.Object({
  id: Type.String({ pattern: idPattern("evt") }),
  event: Type.String(),
  createdAt: Timestamp,
  data: Type.Record(Type.String(), Type.Unknown()),
})
export const EventList = Type.Object({ data: Type.Array(event), ...ListEnd })
export const EventId = Type.Object({ id: Type.String({ description: "The event's id" }) })
export const EventWhole = Type.Object({ data: event })
