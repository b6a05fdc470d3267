/**
 * Parts an answer of the API into what this service says and what others wrote: payers, merchants, or whoever deploys a token. An
 * assistant may take any text for an order, so such text comes in a part of its own, and everything is such text that is not
 * known to be harmless.
 */

/** A JSON schema of the API's document, as far as it is read here. */
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

/** Numbers, times, ids, addresses, hashes and networks: no order to anybody can be written in them. */
const HARMLESS =
  /^(-?\d[\d.]*%?|\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?|[a-z]{2,5}_[a-z0-9]{24,32}|(0x)?[0-9a-fA-F]{40,64}|0x[0-9a-fA-F]{1,512}|eip155:\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/

/** Codes, as this service names states, events and networks: no spaces, so no sentences. */
const CODE = /^[\w.:-]{1,64}$/
/** A token's contract chooses its symbol, and a longer one could be a sentence without spaces. */
const SYMBOL = /^[A-Za-z0-9]{1,12}$/
/**
 * Fields whose text this service makes, with all that such text can be. A sentence is never among them, though this service words
 * it: `why` and `text` quote what a listener, a node or a contract has said.
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
/** Objects whose names are chosen by others, too. */
const FREE = new Set(["metadata", "payerInfo", "contentData"])
const NAME = /^[a-z][a-zA-Z0-9]{0,40}$/

/** An answer in two parts. */
export interface Parted {
  /** The answer without what others wrote. */
  result: object
  /** What others wrote, by its place in the answer (RFC 6901). */
  untrusted: Record<string, unknown>
}

/** Parts an answer. */
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
    // The items of a list have its name: a list of text is all ours, or not.
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
 * The schema of an answer's `result`, made of the schema of the answer: text that may have been moved away is no longer required.
 * References stay, and `definitions` gets each schema that they name.
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
    // Set first: a schema may contain itself.
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

/** Whether a field may be moved away: all that can hold text, a list of text, or names that others choose. */
function mayMove(name: string, schema: Schema, schemas: Record<string, Schema>): boolean {
  if (FREE.has(name)) return true
  const { $ref, type, items, anyOf = [], oneOf = [], allOf = [] } = schema
  if ($ref) return mayMove(name, schemas[$ref.split("/").at(-1) ?? ""] ?? {}, schemas)
  if ([...anyOf, ...oneOf, ...allOf].some(each => mayMove(name, each, schemas))) return true
  if ([type].flat().includes("string")) return true
  if ([type].flat().includes("object") && !schema.properties) return true
  return items !== undefined && mayMove(name, items, schemas)
}
