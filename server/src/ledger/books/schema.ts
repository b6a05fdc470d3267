/** The wire contract of the merchant's money: the fields that payments, shares, sweeps and returns have in common. */
import { Type } from "typebox"
import type { WaitingFor } from "../../platform/db/columns.ts"
import { exceptions } from "../../platform/db/columns.ts"
import { AddressText, Described, HashText, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { Value } from "../rates/read-values.ts"

/** The fields of each row, except its type and status. */
export const transaction = {
  id: Type.String(),
  exception: Type.Unsafe<WaitingFor | null>({ type: ["string", "null"], enum: [...exceptions, null] }),
  amount: Type.String({
    examples: ["5.00"],
    description: "In whole tokens, with at least two decimals; in base units if `decimals` is null",
  }),
  currency: Type.String({ description: "The token's symbol, or its address if the symbol is unknown" }),
  currencyVerified: Type.Boolean({
    description:
      "Whether this is the network's settlement token. If false, `currency` is only the name that the contract gives itself",
  }),
  token: Described(AddressText, "The token's contract. Anyone can deploy another token with the same name"),
  decimals: Nullable(Type.Integer({ description: "The token's decimals; null if unknown" })),
  chain: Type.String(),
  txHash: Nullable(HashText),
  payer: Nullable(AddressText),
  recipient: Nullable(AddressText),
  paywallId: Nullable(Type.String()),
  sessionId: Nullable(Type.String()),
  bundleId: Nullable(Type.String()),
  description: Nullable(
    Type.String({ description: "What was paid for: the checkout's description, or the name of the paywall or bundle" }),
  ),
  paymentId: Nullable(Type.String()),
  createdAt: Timestamp,
  value: Nullable(Value),
}
