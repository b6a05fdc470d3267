/**
 * Splits an answer of the API into what this service says and what others wrote: payers, merchants, or whoever
 * deploys a token. An assistant may take any text for an instruction. So text that others wrote comes in a separate
 * part, and all text counts as such unless it is known to be harmless.
 */

/** A JSON schema from the API's document, with the parts that are read here. */
export interface Schema {
  $ref?: string
  type?: string | string[]
  enum?: unknown[]
  const?: unknown
  properties?: Record<string, Schema>
  required?: string[]
  items?: Schema
  anyOf?: Schema[]
  oneOf?: Schema[]
  allOf?: Schema[]
  additionalProperties?: boolean | Schema
  [more: string]: unknown
}

/** Numbers, times, ids, addresses, hashes and networks. Nobody can write an instruction in these forms. */
const HARMLESS =
  /^(-?\d[\d.]*%?|\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?|[a-z]{2,5}_[a-z0-9]{24,32}|(0x)?[0-9a-fA-F]{40,64}|0x[0-9a-fA-F]{1,512}|eip155:\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/

/** Codes with which this service names states, events and networks. They have no spaces, so they can't be sentences. */
const CODE = /^[\w.:-]{1,64}$/
/** A token's contract chooses its symbol, and a longer symbol could be a sentence without spaces. */
const SYMBOL = /^[A-Za-z0-9]{1,12}$/
/**
 * Fields whose text this service creates, with every form that this text can have. Sentences are not among them, even
 * if this service words them: `why` and `text` quote what a listener, a node or a contract said.
 */
const OURS = new Map([
  ...["state", "kind", "status", "type", "event", "chain", "interval", "exception", "heldReason", "method", "code"].map(
    name => [name, CODE] as const,
  ),
  ["word", /^[A-Z][a-z]+,?( [a-z]+){0,3}$/],
  ["route", /^([A-Z]{3,7} )?\/[\w/:.*-]{0,200}$/],
  ["next", /^[\w.:=-]{1,200}$/],
  ["currency", SYMBOL],
  ["symbol", SYMBOL],
])
/** Objects in which others choose the names of the fields, too. */
const FREE = new Set(["metadata", "payerInfo", "contentData"])
const NAME = /^[a-z][a-zA-Z0-9]{0,40}$/

/** An answer in two parts. */
export interface Parted {
  /** The answer without the text that others wrote. */
  result: object
  /** The text that others wrote, by its place in the answer (RFC 6901). */
  untrusted: Record<string, unknown>
}

/** Splits an answer into the two parts. */
export function part(answer: object): Parted {
  const untrusted: Record<string, unknown> = {}
  const result = partOf(answer, "", "", untrusted)
  return { result: (result ?? {}) as object, untrusted }
}

function partOf(value: unknown, name: string, at: string, untrusted: Record<string, unknown>): unknown {
  if (typeof value === "string") {
    if (isOurs(name, value)) return value
    untrusted[at] = value
    return undefined
  }
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) {
    // The items of a list count under the list's name. So either all texts of a list are ours, or none is.
    if (value.some(each => typeof each === "string" && !isOurs(name, each))) {
      untrusted[at] = value
      return undefined
    }
    return value.map((each, i) => partOf(each, name, `${at}/${i}`, untrusted))
  }
  if (FREE.has(name) || !Object.keys(value).every(key => NAME.test(key))) {
    untrusted[at] = value
    return undefined
  }
  const fields = Object.entries(value).flatMap(([key, each]) => {
    const kept = partOf(each, key, `${at}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`, untrusted)
    return kept === undefined ? [] : [[key, kept] as const]
  })
  return Object.fromEntries(fields)
}

const isOurs = (name: string, text: string): boolean => HARMLESS.test(text) || OURS.get(name)?.test(text) === true

/**
 * The schema of an answer's `result`, derived from the schema of the answer: text that may have been moved to
 * `untrusted` is no longer required. References stay, and each schema that they name is added to `definitions`.
 */
export function partedSchema(
  schema: Schema,
  schemas: Record<string, Schema>,
  definitions: Record<string, Schema>,
): Schema {
  const { $ref, properties, required, items, anyOf, oneOf, allOf, examples: _, example: __, ...rest } = schema
  const inner = (each: Schema) => partedSchema(each, schemas, definitions)
  const name = $ref?.split("/").at(-1)
  if (name !== undefined && definitions[name] === undefined) {
    // Set before the recursion, because a schema may contain itself.
    definitions[name] = {}
    definitions[name] = inner(schemas[name] ?? {})
  }
  const always = properties && required?.filter(key => !mayMove(key, properties[key] ?? {}, schemas))
  return {
    ...rest,
    ...(name === undefined ? {} : { $ref: `#/$defs/${name}` }),
    ...(properties
      ? { properties: Object.fromEntries(Object.entries(properties).map(([key, each]) => [key, inner(each)])) }
      : {}),
    ...(always && always.length > 0 ? { required: always } : {}),
    ...(items ? { items: inner(items) } : {}),
    ...(anyOf ? { anyOf: anyOf.map(inner) } : {}),
    ...(oneOf ? { oneOf: oneOf.map(inner) } : {}),
    ...(allOf ? { allOf: allOf.map(inner) } : {}),
  }
}

/**
 * Whether a field may be moved to `untrusted`: any field that can hold text, a list of text, or names that others
 * choose.
 */
function mayMove(name: string, schema: Schema, schemas: Record<string, Schema>): boolean {
  if (FREE.has(name)) return true
  const { $ref, type, items, anyOf = [], oneOf = [], allOf = [] } = schema
  if ($ref) return mayMove(name, schemas[$ref.split("/").at(-1) ?? ""] ?? {}, schemas)
  if ([...anyOf, ...oneOf, ...allOf].some(each => mayMove(name, each, schemas))) return true
  if ([type].flat().includes("string")) return true
  if ([type].flat().includes("object") && !schema.properties) return true
  return items !== undefined && mayMove(name, items, schemas)
}
