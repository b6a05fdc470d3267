/** The wire contract of the audit log. */
import { type Static, Type } from "typebox"
import type { Row } from "../../platform/db/schema.ts"
import { Described, ListEnd, Matching, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { TimeInput } from "../../platform/http/time.ts"

const kinds: Row<"audit_entries">["actor_kind"][] = ["console", "api_key", "subscriber", "operator", "service"]
const ActorKind = Type.Unsafe<Row<"audit_entries">["actor_kind"]>({
  type: "string",
  enum: kinds,
  description:
    "`console`: a console token. `api_key`: an API key. `subscriber`: a payer's wallet that signed in. `operator`: a command of the service's operator. `service`: the service itself, or a manual change in its database",
})

const all = (kind: string): string[] => ["created", "changed", "deleted"].map(verb => `${kind}.${verb}`)

/** Every action that an entry can have. */
export const actions = [
  "settings.created",
  "settings.changed",
  ...all("payout_address"),
  ...all("wallet_proof"),
  ...all("branding"),
  ...all("api_key"),
  ...all("merchant_limit"),
  ...all("member"),
  "team_invitation.created",
  "team_invitation.deleted",
  "device_sign_in.approved",
  "device_sign_in.denied",
  ...all("paywall"),
  ...all("product"),
  ...all("payment_link"),
  ...all("split"),
  ...all("webhook"),
  "webhook_secret.created",
  "webhook_secret.revealed",
  "secret.shown_again",
  ...all("bundle"),
  ...all("bundle_header"),
  "bundle_routes.added",
  "bundle_routes.changed",
  "bundle_routes.removed",
  "payment.accepted",
  "payment.returned",
  "surplus.accepted",
  "surplus.returned",
  "grant.revoked",
  "refund.created",
  "refund.withdrawn",
  "checkout.captured",
  "checkout.voided",
  "checkout.changed",
  "payout.changed",
  "subscription.changed",
  "erasure.created",
]
const Action = Type.Unsafe<string>({
  type: "string",
  enum: actions,
  description: "The kind of object, and what happened to it",
})

const Fields = (description: string) =>
  Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true, description })

const AuditEntry = Type.Object({
  id: Type.String({ examples: ["aud_0f8b2c1e5d7a4e0f9b3c6d8a1e2f4b5c"] }),
  at: Described(Timestamp, "According to the database's clock"),
  actor: Type.Object({
    kind: ActorKind,
    id: Described(
      Nullable(Type.String()),
      "The subject of the token, the id of the key, the wallet (CAIP-10), or the operator's user name; null for `service`",
    ),
    issuer: Described(Nullable(Type.String()), "Who issued the token; `BASE_URL` for a wallet. Null for other kinds"),
  }),
  action: Action,
  object: Type.Object({
    type: Type.String({ examples: ["paywall"] }),
    id: Type.String({
      description:
        "The id that the object's own routes use. For settings, branding and the account's secret it is the merchant's id; for a payout address, its network (CAIP-2)",
      examples: ["pw_tz4a98xxat96iws9zmbrgj3a"],
    }),
  }),
  before: Fields(
    "The previous values of the fields that changed; null if the object was created. Secrets, and sold content, are `[secret]`. Texts are cut at 10,000 characters",
  ),
  after: Fields("The new values of the same fields; null if the object was deleted"),
  address: Described(
    Nullable(Type.String({ examples: ["203.0.113.7"] })),
    "The client's IP address; null for subscribers, operators and the service",
  ),
  userAgent: Described(Nullable(Type.String()), "As the client sent it; at most 200 characters"),
  route: Described(
    Nullable(Type.String({ examples: ["PUT /api/console/paywalls/:id"] })),
    "The request's route, or the operator's command",
  ),
  requestId: Described(Nullable(Type.String()), "The same for all entries of one request"),
})

const filters = {
  actor: Type.Optional(
    Matching("^\\S(.{0,298}\\S)?$", "The id of an actor: 1 to 300 characters, neither the first nor the last a space"),
  ),
  actorKind: Type.Optional(ActorKind),
  action: Type.Optional(Action),
  object: Type.Optional(
    Matching("^[\\w:.-]{1,100}$", "The id of the changed object: 1 to 100 letters, digits and characters of ids"),
  ),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; entries of exactly this time are not included")),
}
export const AuditFilters = Type.Object(filters)
export type AuditFilters = Static<typeof AuditFilters>
export const AuditList = Type.Object({ data: Type.Array(AuditEntry), ...ListEnd })
