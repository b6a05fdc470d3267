/** The wire contract of the search. */
import { Type } from "typebox"
import { Described, SearchText } from "../../platform/http/schemas.ts"

export const matchTypes = [
  "payment",
  "checkout",
  "payout",
  "refund",
  "subscription",
  "invoice",
  "event",
  "delivery",
  "paywall",
  "product",
  "payment_link",
  "bundle",
  "split",
] as const

export const SearchQuery = Type.Object({
  q: {
    ...Described(
      SearchText,
      "An id, a transaction hash, an address, an e-mail address, a slug, the start of a name, an amount, a value of metadata, or `key:value`",
    ),
    examples: ["order:1001"],
  },
})

export const Matches = Type.Object({
  data: Type.Array(
    Type.Object({
      type: Type.Enum([...matchTypes], { type: "string" }),
      id: Type.String(),
      title: Type.String({ examples: ["5.00 USDC, Order 1001"] }),
      matched: Type.String({ description: "The field in which it was found", examples: ["metadata order"] }),
      url: Type.String({ description: "Its page in the console" }),
    }),
    { description: "At most 20" },
  ),
})
