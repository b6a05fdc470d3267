/** The wire contract of the console's sign-in: its public configuration, sessions, and their end. */
import { Type } from "typebox"
import { networkNames } from "../../platform/chain/network-facts.ts"
import { AddressText, Described, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import { Signature, SignedMessage, signedExample } from "../identity/schema.ts"

const Text = Type.String()
const oneOf = <const T extends string>(...values: T[]) => Type.Unsafe<T>({ type: "string", enum: values })
const Way = oneOf("provider", "wallet", "sandbox")

export const ConsoleConfig = Type.Object({
  name: Type.String({ description: "The host of `BASE_URL`", examples: ["pay.example"] }),
  mode: oneOf("sandbox", "test", "live"),
  baseUrl: Type.String({ description: "Where payers reach the service", examples: ["https://pay.example"] }),
  consoleUrl: Type.String({ description: "Where the console is", examples: ["https://pay.example"] }),
  signIn: Type.Object({
    ways: Type.Array(Way, {
      description:
        "`provider`: open `/console/sign-in`. `wallet`: sign the message of `POST /api/auth/nonce`. `sandbox`: choose one of `merchants`. Send the last two to `POST /api/console/session`",
    }),
    provider: Nullable(Type.String({ description: "The identity provider's host", examples: ["id.example"] })),
    merchants: Type.Array(Type.Object({ id: Text, name: Text }), {
      description: "The sandbox's merchants; otherwise empty",
    }),
  }),
  networks: Type.Array(
    Type.Object({
      network: Type.Unsafe<(typeof networkNames)[number]>({ type: "string", enum: networkNames }),
      title: Text,
      chainId: Type.Integer(),
      explorer: Nullable(Type.String({ description: "The address of its block explorer" })),
      token: Type.Object({ address: AddressText, symbol: Text, decimals: Type.Integer() }),
    }),
    { description: "The networks of this service; the first is the default" },
  ),
})

export const SessionBegin = Strict(
  {
    message: Type.Optional(Described(SignedMessage, "What the wallet signed, as for `POST /api/auth/verify`")),
    signature: Type.Optional(Signature),
    merchantId: Type.Optional(
      Type.String({
        maxLength: 64,
        description: "Only in the sandbox, instead of a signature: the merchant to sign in as",
      }),
    ),
  },
  signedExample,
)

const shown = {
  id: Type.String({ pattern: idPattern("ses") }),
  way: Described(Way, "How the person signed in"),
  createdAt: Timestamp,
  lastSeenAt: Described(Timestamp, "Accurate to a minute"),
  expiresAt: Described(Timestamp, "When it ends: one hour after its last use, and twelve hours after the sign-in"),
}
export const SessionBegun = Type.Object(shown)
export const SessionList = Type.Object({
  data: Type.Array(
    Type.Object({
      ...shown,
      current: Type.Boolean({ description: "Whether it is the session of this request" }),
      address: Nullable(Type.String({ description: "The IP address that signed in" })),
      userAgent: Nullable(Type.String({ description: "The browser that signed in" })),
    }),
  ),
})

export const SessionId = Type.Object({
  id: Type.String({ description: "The session's id", examples: ["ses_tz4a98xxat96iws9zmbrgj3a"] }),
})
export const SignedOut = Type.Object({ signedOut: Type.Literal(true) })
