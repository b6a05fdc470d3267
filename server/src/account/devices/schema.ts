/** The wire contract of a device's sign-in, with the names of RFC 8628. */
import { Type } from "typebox"
import { SCOPES, type Scope } from "../../platform/http/rights.ts"
import { Described, Matching, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const Scopes = Type.Array(Type.Unsafe<Scope>({ type: "string", enum: SCOPES }), { minItems: 1, uniqueItems: true })

export const DeviceBegin = Strict(
  {
    host: Matching("^[\\w.-]{1,64}$", "The machine's name, shown to the person: 1 to 64 letters, digits, ., _ and -"),
    scopes: Type.Optional(
      Described(
        Scopes,
        "The key's scopes: `read` by default, in the sandbox `read`, `webhooks`, `checkouts` and `catalog`. They can't exceed the role of the person who approves",
      ),
    ),
  },
  { host: "anns-laptop", scopes: ["read"] },
)
const DeviceCode = Matching("^[0-9A-Za-z]{43}$", "A device code: 43 letters and digits")
export const DeviceBegun = Type.Object({
  device_code: Type.String({
    description: "Polls for the key. Keep it secret",
    examples: ["kZ0vJ3qRr2m1XyP8uT5wB7nC4dE6fG9hJ0kL2mN4pQs"],
  }),
  user_code: Type.String({ description: "What the person types at `verification_uri`", examples: ["WDJBMJHT"] }),
  verification_uri: Type.String({ examples: ["https://pay.example/console/device"] }),
  expires_in: Type.Integer({ description: "In seconds" }),
  interval: Type.Integer({ description: "Seconds to wait between polls; add five after each `slow_down`" }),
})
export const DeviceAsk = Strict(
  { device_code: DeviceCode },
  { device_code: "kZ0vJ3qRr2m1XyP8uT5wB7nC4dE6fG9hJ0kL2mN4pQs" },
)
export const DeviceKey = Type.Object({
  id: Type.String({ pattern: idPattern("key") }),
  key: Type.String({ description: "The API key, shown only once" }),
  name: Type.String({ examples: ["CLI, anns-laptop, ann@shop.example"] }),
  scopes: Scopes,
  merchantId: Type.String({ pattern: idPattern("mer") }),
  expiresAt: Timestamp,
})
