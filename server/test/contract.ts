/** Checks answers against the OpenAPI document: an answer that the document does not declare is a failure. */
import { Ajv2020 } from "ajv/dist/2020.js"

/** The part of JSON Schema that requests use. */
export interface Schema {
  type?: string | string[]
  properties?: Record<string, Schema>
  additionalProperties?: boolean | Schema
  required?: string[]
  items?: Schema
  maxLength?: number
  minimum?: number
  exclusiveMinimum?: number
  maximum?: number
}
export interface Parameter {
  name: string
  in: string
  example?: string
  required?: boolean
  schema: Schema
}
export interface Operation {
  summary?: string
  operationId?: string
  tags?: string[]
  security?: object[]
  parameters?: (Parameter | { $ref: string })[]
  requestBody?: { required: boolean; content: { "application/json": { schema: Schema; example: object } } }
  responses: Record<string, { $ref?: string }>
}
export interface Document {
  paths: Record<string, Record<string, Operation>>
  components: Record<string, Record<string, object>>
}

interface Answer {
  status: number
  headers: Record<string, unknown>
  body: unknown
}

/** How a sentence begins whose subject is a field or the body, or something else that has a name. */
const BEGINNING =
  /^(?:(?:`[^`]{1,100}`|The body|This field) (?:must|can't|is|was|has|does|names|points|belongs|comes|appears|contains) |(?!The body|This field)[A-Z])/

/** The faults of an answer that are not sentences. */
const unclear = (body: unknown): string[] =>
  ((body as { details?: { message: string }[] } | null)?.details ?? [])
    .map(({ message }) => message)
    .filter(message => !BEGINNING.test(message) || !/[^.?][.?]$/.test(message.slice(-2)))

/** A check that throws when the document does not declare an answer. */
export function contractOf(document: Document): (method: string, url: string, answer: Answer) => void {
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false })
  ajv.addSchema(document, "document")
  const fit = (pointer: string[], body: unknown): string | undefined => {
    const encoded = pointer.map(part => encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1")))
    const validate = ajv.getSchema(`document#/${encoded.join("/")}`)
    if (!validate) return "is not in the document"
    return validate(body) ? undefined : ajv.errorsText(validate.errors)
  }
  const routes = Object.keys(document.paths).map(path => ({
    path,
    pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]*")}$`),
  }))

  return (method, url, { status, headers, body }) => {
    const path = routes.find(({ pattern }) => pattern.test(url.split("?", 1)[0] ?? ""))?.path ?? ""
    const operation = document.paths[path]?.[method.toLowerCase()]
    const fail = (why: string) => {
      throw new Error(`${method} ${path || url} answered ${status} ${JSON.stringify(body)}, which ${why}`)
    }
    if (status >= 400 && unclear(body).length > 0) fail(`has details that are no sentences: ${unclear(body)}`)
    // A page for people, whatever its status.
    if (!operation && String(headers["content-type"]).startsWith("text/html")) return undefined
    // Priced calls are in no document: their answers are those of the origins, and the 402 that of the protocol.
    if (!operation && status === 402 && headers["payment-required"] !== undefined) return undefined
    // Answers to assistants are those of their protocol.
    if (!operation && (body as { jsonrpc?: unknown } | undefined)?.jsonrpc === "2.0") return undefined
    if (!operation) {
      const fault =
        status < 400 ? undefined : fit(["components", "schemas", status === 429 ? "RateLimited" : "Error"], body)
      return fault === undefined ? undefined : fail(`is no error of ours: ${fault}`)
    }
    const declared = operation.responses[status]
    if (!declared) return fail("its document does not declare")
    const at = declared.$ref
      ? declared.$ref.split("/").slice(1)
      : ["paths", path, method.toLowerCase(), "responses", `${status}`]
    const type = `${headers["content-type"]}`.split(";", 1)[0] ?? ""
    const fault = fit([...at, "content", type, "schema"], body)
    return fault === undefined ? undefined : fail(`is not what its document declares: ${fault}`)
  }
}
