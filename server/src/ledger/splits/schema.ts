/** The wire contract of splits. */
import { type Static, Type } from "typebox"
import { AddressText, ListEnd, Matching, Name, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const Description = Nullable(Type.String({ maxLength: 2_000 }))

/** The field that refers to a split. */
export const SplitId = Nullable(
  Matching(idPattern("spl"), "The id of a split, `spl_` and 24 characters; null for none"),
)

export const SplitPath = Type.Object({
  id: Type.String({ description: "The split's id", examples: ["spl_tz4a98xxat96iws9zmbrgj3a"] }),
})

/**
 * The number of recipients, their percentages and the owners of their addresses are checked elsewhere, and reported as
 * `INVALID_SPLIT`.
 */
const RecipientInput = Strict({
  address: AddressText,
  percent: Type.Number({
    description: "Share of each payment, above 0, with at most 4 decimals; all shares add up to exactly 100",
  }),
  label: Type.Optional(Nullable(Type.String({ maxLength: 200 }))),
})
const RecipientsInput = Type.Array(RecipientInput, { description: "2 to 50 recipients, no address twice" })
export type RecipientsInput = Static<typeof RecipientsInput>

const example = [
  { address: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", percent: 70, label: "Author" },
  { address: "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", percent: 30, label: "Publisher" },
]

export const SplitCreate = Strict(
  { name: Name, description: Type.Optional(Description), recipients: RecipientsInput },
  { name: "Author and publisher", recipients: example },
)
export type SplitCreate = Static<typeof SplitCreate>

export const SplitChange = Strict(
  {
    name: Type.Optional(Name),
    description: Type.Optional(Description),
    recipients: Type.Optional(RecipientsInput),
  },
  { recipients: example },
)
export type SplitChange = Static<typeof SplitChange>

const recipients = Type.Array(
  Type.Object({ address: AddressText, percent: Type.Number(), label: Nullable(Type.String()) }),
)
const listed = { id: Type.String({ pattern: idPattern("spl") }), name: Type.String(), recipients, createdAt: Timestamp }

export const SplitWhole = Type.Object({ ...listed, description: Nullable(Type.String()) })
export const SplitList = Type.Object({ data: Type.Array(Type.Object(listed)), ...ListEnd })
export const SplitChanged = Type.Object({ id: Type.String(), name: Type.String(), recipients, updatedAt: Timestamp })
export const SplitDeleted = Type.Object({ deleted: Type.Literal(true), id: Type.String() })
