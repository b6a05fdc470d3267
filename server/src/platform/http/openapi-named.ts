/**
 * Stores each named schema of the OpenAPI document once. This happens in the finished document, so validation and
 * serialization use the schemas that routes declare.
 */
import { type Document, goodJsonOf, type Json, jsonOf, type Operation, operationsOf } from "./openapi-document.ts"

/** A named schema, and its description wherever it is used. */
interface Named {
  name: string
  descriptions: Set<unknown>
}
/** Finds the name of a schema, by any schema that is equal to it. */
type Names = (schema: Json) => Named | undefined

/** Two schemas that differ only in these annotations accept the same values. */
const annotations = ["description", "examples", "example"]

/** A copy of the document whose schemas have the names of `places`; see openapi-places.ts. */
export function named<T extends Document>(document: T, places: Record<string, string>): T {
  const operations = operationsOf(document)
  const schemas = Object.entries(places).flatMap(([name, place]): [string, Json][] => {
    const schema = schemaAt(place, operations)
    return schema ? [[name, orNotNull(schema)]] : []
  })
  const keyOf = openKeys()
  const byKey = new Map(schemas.map(([name, schema]) => [keyOf(schema), { name, descriptions: new Set() }]))
  const names: Names = schema => byKey.get(keyOf(schema))
  noteDescriptions(document, names)
  const own = Object.fromEntries(schemas.map(([name, schema]) => [name, stored(schema, names)]))
  const { components, ...rest } = document
  const { schemas: shared = {}, ...others } = components ?? {}
  return {
    ...(inside(rest, names) as T),
    components: { ...(inside(others, names) as Json), schemas: { ...own, ...(inside(shared, names) as Json) } },
  }
}

/** The schema at a place; undefined if the service has no such route. */
function schemaAt(place: string, operations: Map<string, Operation>): Json | undefined {
  const [id = "", ...steps] = place.split(" ")
  const { parameters = [], requestBody, responses = {} } = operations.get(id) ?? {}
  const [first = "", ...rest] = steps
  if (first === "body") return fieldAt(jsonOf(requestBody), rest)
  if (first in responses) return fieldAt(jsonOf(responses[first]), rest)
  const parameter = parameters.find(each => "in" in each && `?${each.name}` === first)
  if (parameter && "in" in parameter) return parameter.schema as Json
  return fieldAt(goodJsonOf({ responses }), steps)
}

const fieldAt = (schema: Json | undefined, steps: string[]): Json | undefined =>
  steps.reduce<Json | undefined>((at, step) => {
    if (step === "[]") return at?.items as Json | undefined
    if (step === "{}") return at?.additionalProperties as Json | undefined
    if (/^\d$/.test(step)) return (at?.anyOf as Json[] | undefined)?.[Number(step)]
    return (at?.properties as Record<string, Json> | undefined)?.[step]
  }, schema)

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null

/** The schema without null, if null is one of several types; else the schema itself. */
function orNotNull(schema: Json): Json {
  if (!Array.isArray(schema.type) || !schema.type.includes("null")) return schema
  const types = schema.type.filter(type => type !== "null")
  const values = Array.isArray(schema.enum) ? { enum: schema.enum.filter(value => value !== null) } : {}
  return { ...schema, type: types.length === 1 ? types[0] : types, ...values }
}

/**
 * Returns a function that gives equal text for schemas that accept the same values. For a bare type, the text also
 * contains the schema's examples or, without examples, its description. A schema seen before is represented by a number
 * in the text of whatever contains it. Otherwise each list would repeat its rows and their fields (290 ms instead of 43
 * for the whole document).
 */
function openKeys(): (schema: Json) => string {
  const numbers = new Map<string, number>()
  const seen = new WeakMap<object, string>()
  const short = (value: unknown, isFields = false): string => {
    if (!isObject(value)) return `${JSON.stringify(value)}`
    // `{}` accepts what `true` accepts.
    if (!isFields && Object.keys(value).length === 0) return "true"
    const before = seen.get(value)
    if (before !== undefined) return before
    const text = Array.isArray(value) ? `[${value.map(each => short(each))}]` : fieldsOf(value, isFields)
    const number = numbers.get(text) ?? numbers.size
    numbers.set(text, number)
    seen.set(value, `#${number}`)
    return `#${number}`
  }
  const fieldsOf = (value: Json, isFields: boolean): string => {
    const kept = Object.keys(value).filter(key => isFields || !annotations.includes(key))
    return `{${kept.sort().map(key => `${key}:${short(value[key], key === "properties")}`)}}`
  }
  return schema => {
    const isBare = Object.keys(schema).every(key => key === "type" || key === "const" || annotations.includes(key))
    return isBare ? JSON.stringify([schema.type, schema.const, schema.examples ?? schema.description]) : short(schema)
  }
}

const isSchema = (value: unknown): value is Json =>
  isObject(value) && !Array.isArray(value) && ("type" in value || "anyOf" in value)

function noteDescriptions(value: unknown, names: Names): void {
  if (isSchema(value)) names(orNotNull(value))?.descriptions.add(value.description)
  if (isObject(value))
    for (const [key, each] of Object.entries(value)) if (!/^examples?$/.test(key)) noteDescriptions(each, names)
}

/** The schema in its stored form: with its description only if the description is the same everywhere. */
function stored(schema: Json, names: Names): unknown {
  const { description, ...rest } = schema
  return inside(names(schema)?.descriptions.size === 1 ? schema : rest, names)
}

/** The value with references for the named schemas in it. */
function inside(value: unknown, names: Names): unknown {
  if (Array.isArray(value)) return value.map(each => refer(each, names))
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [key, /^examples?$/.test(key) ? each : refer(each, names)]),
  )
}

function refer(value: unknown, names: Names): unknown {
  if (!isSchema(value)) return inside(value, names)
  const schema = orNotNull(value)
  const found = names(schema)
  if (found === undefined) return constant(inside(value, names) as Json)
  const isOwn = "description" in value && found.descriptions.size > 1
  const description = isOwn ? { description: value.description } : {}
  const ref = { $ref: `#/components/schemas/${found.name}` }
  return schema === value ? { ...ref, ...description } : { anyOf: [ref, { type: "null" }], ...description }
}

/** Fastify's plugin writes a constant as an enum of one value, which generators would turn into a class. */
function constant(schema: Json): Json {
  const { enum: values, ...rest } = schema
  return Array.isArray(values) && values.length === 1 ? { ...rest, const: values[0] } : schema
}
