/** The wire contract of callers: wallets that sign in, and API keys. */
import { Type } from "typebox"
import { SCOPES, type Scope } from "../../platform/http/rights.ts"
import { Described, ListEnd, Matching, Name, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { TimeInput } from "../../platform/http/time.ts"
import { idPattern } from "../../platform/ids.ts"

const MESSAGE_CHARACTERS = 8_192
/** 8 KB. Signatures of passkeys and multisignature wallets need a tenth of that. */
const SIGNATURE_CHARACTERS = 16_386

export const SignedMessage = Type.String({ maxLength: MESSAGE_CHARACTERS })
export const Signature = Matching("^0x([0-9a-fA-F]{2})*$", "The bytes of a signature: 0x and hexadecimal digits", {
  maxLength: SIGNATURE_CHARACTERS,
})

const exampleLines = [
  "pay.example wants you to sign in with your Ethereum account:",
  "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
  "",
  "",
  "URI: https://pay.example/api/auth/verify",
  "Version: 1",
  "Chain ID: 8453",
  "Nonce: 7Jq2xR0bTzVn4KcWmY8sLd5H",
  "Issued At: 2026-01-31T12:00:00.000Z",
  "Resources:",
  "- urn:sluice:sign-in",
]
/** Valid only in form: a real message has its own nonce and time. */
export const signedExample = { message: exampleLines.join("\n"), signature: `0x${"5f".repeat(64)}1b` }

/** An empty body, which may be omitted. */
export const NoBody = Strict({}, {})
/** A nonce, and what the EIP-4361 message that contains it must say. */
export const nonceAnswer = {
  nonce: Type.String(),
  expiresAt: Timestamp,
  domain: Type.String({ examples: ["pay.example"] }),
  uri: Type.String({ examples: ["https://pay.example/api/auth/verify"] }),
  chainIds: Type.Array(Type.Integer(), { description: "The message names one of them" }),
  statement: Type.String({ description: "What the person reads; the message may contain another statement or none" }),
  resources: Type.Array(Type.String(), { description: "The message names exactly these" }),
  message: Type.String({
    description: "A message to sign: replace `{address}` with the wallet's checksummed address",
  }),
}
export const NonceAnswer = Type.Object(nonceAnswer)

export const SignIn = Strict(
  { message: Described(SignedMessage, "What the wallet signed, in the form of EIP-4361"), signature: Signature },
  signedExample,
)
export const SignedIn = Type.Object({
  accessToken: Type.String({ description: "A bearer token for `/api/console`" }),
  expiresAt: Timestamp,
  merchantId: Described(
    Nullable(Type.String({ pattern: idPattern("mer") })),
    "The wallet's merchant; null if the wallet is a member of none or of several",
  ),
})

export const KeySet = Type.Object({
  keys: Type.Array(
    Type.Object({
      kty: Type.String(),
      crv: Type.String(),
      x: Type.String(),
      y: Type.Optional(Type.String({ description: "Left out for the keys of receipts (Ed25519)" })),
      kid: Type.String(),
      alg: Type.String(),
      use: Type.String(),
    }),
  ),
})

export const KeyId = Type.Object({
  id: Type.String({ description: "The key's id", examples: ["key_tz4a98xxat96iws9zmbrgj3a"] }),
})
const Scopes = Type.Array(Type.Unsafe<Scope>({ type: "string", enum: SCOPES }), { minItems: 1, uniqueItems: true })
const MAX_ADDRESSES = 50
const MAX_PER_DAY = 1_000_000_000
const MAX_GRACE_S = 7 * 86_400
const PerDay = Type.Unsafe<number | null>({ type: ["integer", "null"], minimum: 0, maximum: MAX_PER_DAY })
const perDay = {
  refundPerDay: Described(PerDay, "Whole tokens in 24 hours, for each token across all networks; null for no limit"),
  returnPerDay: Described(PerDay, "The same for returns of open payments"),
}
const Addresses = Type.Unsafe<string[] | null>({
  type: ["array", "null"],
  items: { type: "string", maxLength: 64 },
  minItems: 1,
  maxItems: MAX_ADDRESSES,
  description:
    "IP addresses and networks (CIDR) that the key works from; null for any. A request from another address gets 403 `IP_NOT_ALLOWED`",
  examples: [["192.0.2.7", "2001:db8::/48"]],
})
const terms = {
  scopes: Type.Optional(
    Described(
      Scopes,
      "The key's scopes, `checkouts` by default; docs/merchants/roles.md lists each scope's routes. With the wallet lock on, `money` and `console` need the payout wallet's signature",
    ),
  ),
  expiresAt: Type.Optional(Described(Nullable(TimeInput), "When it ends; null for never")),
  allowedIps: Type.Optional(Addresses),
  limits: Type.Optional(
    Strict({ refundPerDay: Type.Optional(perDay.refundPerDay), returnPerDay: Type.Optional(perDay.returnPerDay) }),
  ),
}
export const KeyCreate = Strict({ name: Described(Name, "What the key is for"), ...terms }, { name: "Shop server" })
export const KeyChange = Strict(
  { name: Type.Optional(Described(Name, "What the key is for")), ...terms },
  { name: "Till" },
)
export const KeyRoll = Strict(
  {
    graceSeconds: Type.Integer({
      minimum: 0,
      maximum: MAX_GRACE_S,
      description: "How long the previous secret stays valid: 0 ends it immediately, and 604,800 is a week",
    }),
  },
  { graceSeconds: 86_400 },
)
export const KeyLimits = Type.Object(perDay)
export const KeyLimitsChange = Strict(
  { refundPerDay: Type.Optional(perDay.refundPerDay), returnPerDay: Type.Optional(perDay.returnPerDay) },
  { refundPerDay: 1_000 },
)
const listed = {
  id: Type.String({ pattern: idPattern("key") }),
  name: Type.String(),
  scopes: Scopes,
  expiresAt: Nullable(Timestamp),
  allowedIps: Type.Unsafe<string[] | null>({ type: ["array", "null"], items: { type: "string" } }),
  limits: Type.Object(perDay),
  prefix: Type.String({ examples: ["sk_test_"] }),
  last4: Type.String(),
  previousExpiresAt: Described(Nullable(Timestamp), "When the secret from before the last roll stops working"),
  byDevice: Type.Boolean({
    description: "Whether a device got the key (`POST /api/device`); such a key can't be changed or rolled",
  }),
  ending: Type.Unsafe<{ reason: "maker_left" | "maker_role"; until: string } | null>({
    ...Type.Object({
      reason: Type.Unsafe<string>({ type: "string", enum: ["maker_left", "maker_role"] }),
      until: Timestamp,
    }),
    type: ["object", "null"],
    description:
      "Why and when the key ends before it expires, unless a member adopts it. Its creator has left the merchant (`maker_left`), or now has a role that may not grant its scopes (`maker_role`). Null for other keys",
  }),
  createdAt: Timestamp,
}
export const KeyShown = Type.Object(listed)
export const KeyCreated = Type.Object({
  ...listed,
  key: Type.String({ description: "The key itself, shown only once" }),
})
export const KeyList = Type.Object({
  data: Type.Array(
    Type.Object({
      ...listed,
      lastUsedAt: Nullable(Type.String({ format: "date-time", description: "Accurate to a minute" })),
    }),
  ),
  ...ListEnd,
})
export const Deleted = Type.Object({ deleted: Type.Literal(true), id: Type.String() })
