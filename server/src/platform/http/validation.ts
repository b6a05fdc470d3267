/** Validates requests against their schemas, and describes the faults in plain words. */
import { SerializerSelector } from "@fastify/fast-json-stringify-compiler"
import { Ajv, type AnySchema, type ErrorObject, type Options, type ValidateFunction } from "ajv"
import { type ErrorDetail, MAX_DETAILS } from "../errors.ts"
import { wordsOfPattern } from "./schemas.ts"
import { nearest } from "./suggest-field.ts"

/** Reports all faults together, each with the schema that it violates. */
const options: Options = { allErrors: true, verbose: true, useDefaults: true, removeAdditional: false, strict: false }
const strictly = new Ajv({ ...options, coerceTypes: false })
const leniently = new Ajv({ ...options, coerceTypes: true })
const compileSerializer = SerializerSelector()

/** Checks a value. As with Ajv, `errors` are the faults of the last check that failed. */
interface Validate {
  (value: unknown): boolean
  errors?: ErrorObject[] | null | undefined
}

/**
 * Fastify's validators. Bodies are checked unconverted; queries and paths are text and may be converted to numbers.
 * Each validator is compiled when it is first needed, because a new process answers few routes. Compiling all
 * validators took a fifth of the time of a start.
 */
export function validatorFactory({ schema, httpPart }: { schema: AnySchema; httpPart?: string }): Validate {
  let compiled: ValidateFunction | undefined
  const validate: Validate = value => {
    compiled ??= (httpPart === "body" ? strictly : leniently).compile(schema)
    const isValid = compiled(value)
    validate.errors = compiled.errors
    return isValid
  }
  return validate
}

/** Fastify's serializers, each compiled when its first answer is sent, for the same reason as validators. */
export const buildSerializer: typeof compileSerializer = (schemas, options) => {
  const compile = compileSerializer(schemas, options)
  return route => {
    let compiled: ReturnType<typeof compile> | undefined
    return answer => {
      compiled ??= compile(route)
      return compiled(answer)
    }
  }
}

/** The faults of a request as clauses about their fields, at most 100. */
export const detailsOf = (faults: ErrorObject[]): ErrorDetail[] =>
  faults.slice(0, MAX_DETAILS).map(fault => {
    const parts = fault.instancePath.split("/").slice(1).map(unescaped)
    const { missingProperty, additionalProperty } = fault.params
    const path = [...parts, missingProperty ?? additionalProperty ?? []].flat().join(".")
    return { path, message: wordsOf(fault) }
  })

/** Unescapes a part of a JSON pointer (RFC 6901). */
const unescaped = (part: string): string => part.replaceAll("~1", "/").replaceAll("~0", "~")

const typeWords: Record<string, string> = {
  string: "text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  object: "an object",
  array: "a list",
  null: "null",
}

function wordsOf({ keyword, params, parentSchema, instancePath, message }: ErrorObject): string {
  const { limit } = params
  switch (keyword) {
    case "required":
      return "is required"
    case "additionalProperties": {
      const meant = nearest(params.additionalProperty, Object.keys(parentSchema?.properties ?? {}))
      return `is not a field of this request${meant === undefined ? "; remove it" : `: did you mean \`${meant}\`?`}`
    }
    case "type": {
      if (instancePath === "") return "must be a JSON object"
      const types: string[] = [params.type].flat()
      if (types.length === 2 && types[1] === "string")
        return `must be ${typeWords[types[0] ?? ""]}, or text that contains one`
      return `must be ${types.map(type => typeWords[type] ?? type).join(" or ")}`
    }
    case "enum":
      return `must be one of: ${params.allowedValues.join(", ")}`
    case "const":
      return `must be ${params.allowedValue}`
    case "pattern":
      return `must be ${wordsOfPattern(params.pattern) ?? "in the form that its description gives"}`
    case "minLength":
      return limit === 1 ? "must not be empty" : `must have at least ${counted(limit, "character")}`
    case "maxLength":
      return `must have at most ${counted(limit, "character")}`
    case "minItems":
      return `must have at least ${counted(limit, "entry")}`
    case "maxItems":
      return `must have at most ${counted(limit, "entry")}`
    case "maxProperties":
      return `must have at most ${counted(limit, "field")}`
    case "uniqueItems":
      return "must not contain the same entry twice"
    case "minimum":
      return `must be at least ${counted(limit)}`
    case "maximum":
      return `must be at most ${counted(limit)}`
    case "exclusiveMinimum":
      return `must be above ${counted(limit)}`
    case "exclusiveMaximum":
      return `must be below ${counted(limit)}`
    default:
      // None of our schemas leads here, because a test checks the text of every answer.
      return message ?? "is not valid: see its description"
  }
}

/** A readable number with its noun: 1 entry, 2 entries. */
function counted(n: number, noun?: "character" | "entry" | "field"): string {
  const number = n.toLocaleString("en-US")
  if (noun === undefined) return number
  return `${number} ${n === 1 ? noun : noun === "entry" ? "entries" : `${noun}s`}`
}
