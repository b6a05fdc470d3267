/** Pieces of wire contracts that every feature uses. */
import { type Static, type TProperties, type TSchema, Type } from "typebox"

/** An object that takes no other field: a misspelt name must not pass in silence. */
export const Strict = <T extends TProperties>(properties: T) => Type.Object(properties, { additionalProperties: false })

/** A value, or null to say that there is none; one schema with two types, so that a fault is told once. */
export const Nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>({ ...schema, type: [(schema as { type?: unknown }).type, "null"] })

export const Timestamp = Type.String({ format: "date-time", examples: ["2026-01-31T12:00:00.000Z"] })

/** Money in responses: a decimal string with at least two decimals. */
export const Money = Type.String({ examples: ["5.00"] })

/** Money in requests, taken exactly as written. */
export const MoneyInput = Type.Unsafe<number | string>({
  type: ["number", "string"],
  exclusiveMinimum: 0,
  maximum: 1_000_000,
  maxLength: 32,
  description: "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000",
})

export const AddressText = Type.String({ examples: ["0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"] })

/** `limit` and `offset` of every list. */
export const Page = Type.Object({
  limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 100 }),
  offset: Type.Integer({ minimum: 0, maximum: 2_147_483_647, default: 0 }),
})
export type Page = Static<typeof Page>
