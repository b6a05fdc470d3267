/** What the command of an operation is made of. */

/** A field of a body or a query: how its text is read. */
export interface Field {
  type: "text" | "number" | "boolean" | "json"
  does: string
  required?: boolean
  /** Whether the word `null` stands for nothing. */
  nullable?: boolean
}

/** An operation of the service as a command. */
export interface Operation {
  /** What the SDK calls it. */
  call: [resource: string, method: string]
  does: string
  ids: string[]
  body?: boolean
  query?: boolean
  /** Whether it answers a list in pages. */
  pages?: boolean
  /** Whether it answers text. */
  csv?: boolean
  /** Whether it takes an idempotency key. */
  key?: boolean
  fields?: Record<string, Field>
}

const kebab = (name: string): string => name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)

/** The option of a field. `--url` is the service's address, so a field of that name gets another. */
export const optionOf = (name: string): string =>
  ["url", "json", "profile", "all", "data"].includes(name) ? `${name}-value` : kebab(name)
