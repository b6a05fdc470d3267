/** The fields of a JSON Schema as a person reads them: name, type, what it says. */
import { Coded } from "./coded.tsx"

interface Schema {
  type?: string | string[]
  description?: string
  enum?: unknown[]
  anyOf?: Schema[]
  items?: Schema
  properties?: Record<string, Schema>
  required?: string[]
}

interface Field {
  /** As it is reached, such as `data.amount`. */
  name: string
  type: string
  words: string
}

const typeOf = ({ type, enum: choices, anyOf, items }: Schema): string => {
  if (choices) return choices.map(each => JSON.stringify(each)).join(" | ")
  if (anyOf) return anyOf.map(typeOf).join(" | ")
  if (items) return `${typeOf(items)}[]`
  return Array.isArray(type) ? type.join(" | ") : (type ?? "any")
}

const fieldsOf = ({ properties = {} }: Schema, before = ""): Field[] =>
  Object.entries(properties).flatMap(([name, schema]) => [
    { name: before + name, type: typeOf(schema), words: schema.description ?? "" },
    ...fieldsOf(schema, `${before}${name}.`),
    ...(schema.items ? fieldsOf(schema.items, `${before}${name}[].`) : []),
  ])

export const SchemaFields = ({ schema }: { schema: object }) => (
  <dl className="schema">
    {fieldsOf(schema as Schema).map(({ name, type, words }) => (
      <div key={name}>
        <dt>
          <span className="mono strong">{name}</span> <span className="mono quiet">{type}</span>
        </dt>
        {words && (
          <dd className="second">
            <Coded text={words} />
          </dd>
        )}
      </div>
    ))}
  </dl>
)
