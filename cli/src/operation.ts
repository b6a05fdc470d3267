/** The facts from which the command of an operation is built. */

/** A field of a body or a query, and how its text is parsed. */
export interface Field {
  type: "text" | "number" | "boolean" | "json"
  does: string
  required?: boolean
  /** Whether the word `null` is parsed as null. */
  nullable?: boolean
}

/** An operation of the service that is available as a command. */
export interface Operation {
  /** The name of the operation in the SDK. */
  call: [resource: string, method: string]
  does: string
  ids: string[]
  body?: boolean
  query?: boolean
  /** Whether the answer is a list in pages. */
  pages?: boolean
  /** Whether the answer is text. */
  csv?: boolean
  /** Whether the operation accepts an idempotency key. */
  key?: boolean
  fields?: Record<string, Field>
}

const kebab = (name: string): string => name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)

/** The option for a field. `--url` is the service's address, so a field with that name gets another option. */
export const optionOf = (name: string): string =>
  ["url", "json", "profile", "all", "data"].includes(name) ? `${name}-value` : kebab(name)
