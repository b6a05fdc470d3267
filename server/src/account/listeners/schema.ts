/** The wire contract of listeners. */
import { type Static, Type } from "typebox"
import { MAX_WAIT_S } from "../../platform/http/await-end.ts"
import { Described, ListEnd, Matching, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import { subscribable } from "../webhooks/webhook.ts"

/** The maximum number of results in one request. */
const MAX_RESULTS = 100
/** How much of a receiver's answer is kept, in characters. */
const MAX_ANSWER = 4_096

const named = subscribable.filter(each => each !== "*")
type Named = (typeof named)[number]
const Events = Type.Array(Type.Unsafe<Named>({ type: "string", enum: named, description: "An event's name" }), {
  minItems: 1,
  maxItems: 50,
  description: "The names of the events to deliver",
})
const Description = Nullable(Type.String({ maxLength: 2_000 }))

export const ListenerId = Type.Object({ id: Type.String({ description: "The listener's id" }) })

export const ListenerCreate = Strict(
  {
    events: Events,
    callbacks: Type.Optional(
      Type.Boolean({
        description:
          "Also delivers a copy of everything sent to a `callbackUrl`, which still gets the original. Only in the sandbox and in test mode",
      }),
    ),
    description: Type.Optional(Description),
  },
  { events: ["checkout.session.completed"], callbacks: true },
)
export type ListenerCreate = Static<typeof ListenerCreate>

const listener = {
  id: Type.String({ pattern: idPattern("lsn") }),
  events: Type.Array(Type.String()),
  callbacks: Type.Boolean(),
  description: Description,
  createdAt: Timestamp,
  pulledAt: Described(
    Timestamp,
    "When its deliveries were last pulled, to within half a minute. The listener ends ten minutes after the last pull",
  ),
}
export const ListenerCreated = Type.Object({
  ...listener,
  secret: Type.String({ pattern: "^whsec_", description: "Verifies its deliveries. Shown only here" }),
})
export const ListenerList = Type.Object({ data: Type.Array(Type.Object(listener)), ...ListEnd })
export const ListenerEnded = Type.Object({ deleted: Type.Literal(true), id: Type.String() })

export const PullQuery = Type.Object({
  wait: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MAX_WAIT_S,
      description: "Answers with JSON, after at most this many seconds if nothing is due earlier; 0 if left out",
    }),
  ),
})

/** A pulled delivery. */
const Pulled = Type.Object({
  deliveryId: Type.String({ pattern: idPattern("dlv") }),
  attempt: Type.Integer({ description: "Counts from 1. Send it back with the result" }),
  event: Type.String({ description: "The event's name" }),
  callbackUrl: Described(
    Nullable(Type.String()),
    "Where the original of a copy is sent; null for the listener's own events. A copy also has the header `service-copy-of`",
  ),
  headers: Type.Record(Type.String(), Type.String(), {
    description: "The headers of the request, signed at the time of this answer",
  }),
  body: Type.String({ description: "The exact bytes of the request's body, in base64" }),
})
export type Pulled = Static<typeof Pulled>
export const PulledList = Type.Object({ data: Type.Array(Pulled) })

const ResultReported = Strict({
  deliveryId: Matching(idPattern("dlv"), "The id of a delivery"),
  attempt: Type.Integer({ minimum: 1, maximum: 1_000_000, description: "As in the pulled delivery" }),
  status: Type.Optional(
    Type.Integer({ minimum: 100, maximum: 599, description: "The HTTP status that the receiver answered" }),
  ),
  error: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 500,
      description: "Why there is no complete answer, as text. `status` or `error` is required",
    }),
  ),
  durationMs: Type.Integer({ minimum: 0, maximum: 86_400_000, description: "How long the receiver took" }),
  answer: Type.Optional(
    Type.String({
      maxLength: MAX_ANSWER,
      description: "The start of the answer's body, as text without NUL characters",
    }),
  ),
})
export type ResultReported = Static<typeof ResultReported>
export const Results = Type.Array(ResultReported, {
  minItems: 1,
  maxItems: MAX_RESULTS,
  examples: [
    [
      {
        deliveryId: "dlv_tz4a98xxat96iws9zmbrgj3a",
        attempt: 1,
        status: 200,
        durationMs: 12,
        answer: "ok",
      },
    ],
  ],
})
export const Recorded = Type.Object({
  recorded: Type.Integer({
    description:
      "How many results were recorded. The rest were reported before, or their delivery was pulled again or has ended",
  }),
})
