/** The wire contract of changes. */
import { Type } from "typebox"
import { Described, Matching, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { POSITION_PATTERN } from "./position.ts"

const MAX_WAIT_S = 25

const Place = Matching(POSITION_PATTERN, "The `id` of a change, or `next` of an answer", {
  examples: ["5f0c2a91-81243-7"],
})

export const ChangesQuery = Type.Object({
  after: Type.Optional(Described(Place, "The `id` of the last change that you have, or `next` of the last answer")),
  wait: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MAX_WAIT_S,
      description: "Seconds that the answer waits for the first change; 0 by default",
    }),
  ),
})

/** The stream's query. `merchant` is read where the membership is chosen. */
export const StreamQuery = Type.Object({ after: Type.Optional(Place), merchant: Type.Optional(Type.String()) })

const ChangeKind = Type.Enum(
  ["checkout", "payment", "payout", "refund", "subscription", "invoice", "delivery", "webhook", "payout_address"],
  { type: "string" },
)

const Change = Type.Object({
  id: Described(Place, "Its place in the order of changes"),
  kind: ChangeKind,
  objectId: Type.String({
    description: "The object's id; for a payout address, its chain's id",
    examples: ["cs_tz4a98xxat96iws9zmbrgj3a"],
  }),
  at: Timestamp,
  row: Described(
    Nullable(Type.Object({}, { additionalProperties: true })),
    "The object's current state, with the fields of its list except large ones. Null if it is in no list or too large: read it by its id",
  ),
})

export const Changes = Type.Object({
  data: Type.Array(Change),
  next: Described(Place, "For `after` of the next request"),
  more: Type.Boolean({ description: "Whether more changes are already available" }),
  reset: Type.Boolean({ description: "Whether changes after `after` may be gone: read your lists again" }),
})
