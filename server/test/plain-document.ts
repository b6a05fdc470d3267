/** The OpenAPI document as it was before anything in it got a name: every reference is replaced by what it stands for. */
import type { Document } from "./contract.ts"

type Json = Record<string, unknown>
const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null

/** A copy without references. What could be null by an alternative has null among its types again. */
export function plainDocument(document: Document): Document {
  const at = (ref: string): unknown =>
    ref
      .split("/")
      .slice(1)
      .reduce<unknown>((value, name) => (value as Json)[name], document)
  const plain = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(plain)
    if (!isObject(value)) return value
    if (typeof value.$ref === "string") {
      const { $ref, ...rest } = value
      return merged(plain(at($ref)) as Json, plain(rest) as Json)
    }
    return withNull(Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)])))
  }
  return plain(document) as Document
}

/** What stands beside a reference adds to it. */
const merged = (base: Json, more: Json): Json => ({
  ...base,
  ...Object.fromEntries(
    Object.entries(more).map(([name, value]) => {
      const before = base[name]
      return [name, isObject(value) && isObject(before) && !Array.isArray(value) ? merged(before, value) : value]
    }),
  ),
})

function withNull(schema: Json): Json {
  const { anyOf, ...rest } = schema
  if (!Array.isArray(anyOf) || anyOf.length !== 2 || anyOf[1]?.type !== "null" || !anyOf[0]?.type) return schema
  const { type, enum: values, ...found } = anyOf[0] as Json
  const words = Array.isArray(values) ? { enum: [...values, null] } : {}
  return { ...found, type: [type, "null"].flat(), ...words, ...rest }
}
