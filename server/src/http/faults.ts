/** How requests are held against their schemas, and what is wrong with them in plain words. */
import { Ajv, type AnySchema, type ErrorObject, type Options } from "ajv"
import type { ErrorDetail } from "../errors.ts"
import { nearest } from "./near.ts"

/** Enough to mend any request; without an end, 256 KB of unknown fields would be answered with 5 MB. */
const MAX_DETAILS = 100

/** All faults at once, with the schema that each is against. */
const options: Options = { allErrors: true, verbose: true, useDefaults: true, removeAdditional: false, strict: false }
const strictly = new Ajv({ ...options, coerceTypes: false })
const leniently = new Ajv({ ...options, coerceTypes: true })

/** Fastify's validators. Bodies are taken as they are; queries and paths are text and may become numbers. */
export const validatorFactory = ({ schema, httpPart }: { schema: AnySchema; httpPart?: string }) =>
  (httpPart === "body" ? strictly : leniently).compile(schema)

/** The faults of a request in the words of the API, at most 100. */
export const detailsOf = (faults: ErrorObject[]): ErrorDetail[] =>
  faults.slice(0, MAX_DETAILS).map(fault => {
    const parts = fault.instancePath.split("/").slice(1).map(unescaped)
    const { missingProperty, additionalProperty } = fault.params
    return { path: [...parts, missingProperty ?? additionalProperty ?? []].flat().join("."), message: wordsOf(fault) }
  })

/** A part of a JSON pointer (RFC 6901). */
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
      return `is not a field of this request${meant === undefined ? "" : `; did you mean ${meant}?`}`
    }
    case "type": {
      if (instancePath === "") return "the body must be a JSON object"
      const types: string[] = [params.type].flat()
      return `must be ${types.map(type => typeWords[type] ?? type).join(" or ")}`
    }
    case "enum":
      return `must be one of: ${params.allowedValues.join(", ")}`
    case "const":
      return `must be ${params.allowedValue}`
    case "pattern": {
      const meant: string | undefined = parentSchema?.description
      return meant === undefined ? "has the wrong form" : `must be ${meant.charAt(0).toLowerCase()}${meant.slice(1)}`
    }
    case "minLength":
      return limit === 1 ? "must not be empty" : `must have at least ${limit} characters`
    case "maxLength":
      return `must have at most ${counted(limit)} characters`
    case "minItems":
      return `must have at least ${limit} entries`
    case "maxItems":
      return `must have at most ${limit} entries`
    case "maxProperties":
      return `must have at most ${limit} fields`
    case "minimum":
      return `must be at least ${counted(limit)}`
    case "maximum":
      return `must be at most ${counted(limit)}`
    case "exclusiveMinimum":
      return `must be above ${counted(limit)}`
    case "exclusiveMaximum":
      return `must be below ${counted(limit)}`
    default:
      return message ?? "is not valid"
  }
}

const counted = (n: number): string => n.toLocaleString("en-US")
