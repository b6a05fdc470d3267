/** The wire contract of the log of requests. */
import { type Static, Type } from "typebox"
import { Described, ListEnd, Matching, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const statusClasses = ["2xx", "3xx", "4xx", "5xx"] as const

const When = Matching(
  "^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,9})?)?(Z|[+-]\\d\\d:\\d\\d))?$",
  "A time in ISO 8601 such as 2026-01-31T12:00:00Z",
  { maxLength: 40 },
)

export const RequestFilters = Type.Object({
  status: Type.Optional(
    Type.Unsafe<(typeof statusClasses)[number] | "refused">({
      type: "string",
      enum: ["refused", ...statusClasses],
      description: "By the first digit of the answer's status; `refused` is 4xx and 5xx",
    }),
  ),
  by: Type.Optional(
    Type.Unsafe<"key" | "person">({
      type: "string",
      enum: ["key", "person"],
      description: "Only requests with an API key (`key`), or only those of people, as in the console (`person`)",
    }),
  ),
  key: Type.Optional(Described(Matching(idPattern("key"), "The id of an API key"), "Only requests of this API key")),
  person: Type.Optional(Described(Matching(idPattern("per"), "The id of a person"), "Only requests of this person")),
  route: Type.Optional(
    Described(
      Matching("^/.{0,199}$", "The path of a route, such as `/api/console/payments/:id`"),
      "Only requests to this route",
    ),
  ),
  from: Type.Optional(Described(When, "Only requests answered at this time or later, in ISO 8601")),
  to: Type.Optional(Described(When, "Only requests answered before this time, in ISO 8601")),
})
export type RequestFilters = Static<typeof RequestFilters>

const request = Type.Object({
  at: Described(Timestamp, "When it was answered"),
  requestId: Described(Type.String(), "The answer's `X-Request-Id`, which callers can choose and reuse"),
  method: Type.String(),
  route: Described(Type.String(), "The route's pattern, without the caller's values"),
  status: Type.Integer(),
  code: Described(Nullable(Type.String()), "The error's code; null if the request was not refused"),
  keyId: Described(Nullable(Type.String()), "The API key that was sent"),
  personId: Described(Nullable(Type.String()), "The person who was signed in, with the id of the team list"),
  durationMs: Type.Integer(),
  refusal: Described(Nullable(Type.String()), "The first 1 KB of the answer, if it is an error"),
})

/** The request id in the documents' examples. */
export const EXAMPLE_REQUEST_ID = "order-1001"

export const RequestId = Type.Object({
  id: Type.String({ description: "The `X-Request-Id` of an answer", examples: [EXAMPLE_REQUEST_ID] }),
})
export const RequestList = Type.Object({ data: Type.Array(request), ...ListEnd })
export const RequestsFound = Type.Object({
  data: Type.Array(request, {
    description: "Newest first, at most 100, because a caller can give many requests the same id",
  }),
})
