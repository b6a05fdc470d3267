/** The wire contract of payouts. */
import { Type } from "typebox"
import { AddressText, HashText, Money, Nullable, Timestamp } from "../../platform/http/schemas.ts"

export const PaymentPath = Type.Object({
  id: Type.String({ description: "The payment's id", examples: ["pay_tz4a98xxat96iws9zmbrgj3a"] }),
})

export const ShareList = Type.Object({
  data: Type.Array(
    Type.Object({
      address: AddressText,
      amount: Money,
      percent: Type.Number(),
      txHash: Nullable(HashText),
      state: Type.Enum(["queued", "held", "assigned", "mined", "final", "reverted", "cancelled"], {
        type: "string",
        description:
          "queued, held and assigned payouts wait; mined and final ones are paid; reverted ones failed on chain",
      }),
      heldReason: Nullable(
        Type.String({
          description: "short, sanctions, simulation (it would fail), low_gas, gas_budget or reverted (it failed)",
        }),
      ),
      updatedAt: Timestamp,
    }),
  ),
  total: Type.Integer(),
})
