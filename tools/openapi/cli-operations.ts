/** Writes cli/src/operations.ts: each operation that an API key may call, with the fields that its command takes as options. */

interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  required?: string[]
  properties?: Record<string, Schema>
  anyOf?: Schema[]
  enum?: unknown[]
}
interface Parameter {
  $ref?: string
  name: string
  in: string
  required?: boolean
  description?: string
  schema?: Schema
}
interface Operation {
  summary?: string
  parameters?: Parameter[]
  requestBody?: { content: { "application/json": { schema: Schema } } }
  responses: Record<string, { content?: Record<string, unknown> }>
  security?: Record<string, unknown>[]
  "x-sdk"?: { resource: string; method: string; paginated?: boolean }
}
interface Document {
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema>; parameters: Record<string, Parameter> }
}

/** Names that are shorter on the command line. */
const renamed: Record<string, string> = { paymentLinks: "links" }
const MAX_DESCRIPTION = 100

const kebab = (name: string): string => name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)
const sentence = (text = ""): string => {
  const [first = ""] = text.replaceAll("`", "").split(/(?<=[.;])\s/, 1)
  const plain = first.replace(/[.;]$/, "")
  return plain.length > MAX_DESCRIPTION ? `${plain.slice(0, MAX_DESCRIPTION - 1)}…` : plain
}

/** The text of operations.ts. */
export function cliOperationsOf(document: Document): string {
  const all: Record<string, Record<string, object>> = {}
  for (const [path, item] of Object.entries(document.paths))
    for (const operation of Object.values(item)) {
      const sdk = operation["x-sdk"]
      if (!sdk || !(operation.security ?? []).some(each => "apiKey" in each)) continue
      // `checkouts` has what the console's own routes have, and these add what it lacks, such as the export.
      const resource = sdk.resource.replace(/^console(?=[A-Z])/, "")
      const name = renamed[resource] ?? kebab(resource.charAt(0).toLowerCase() + resource.slice(1))
      all[name] ??= {}
      const isFirst = all[name][kebab(sdk.method)] === undefined
      if (isFirst) all[name][kebab(sdk.method)] = shapeOf(document, path, operation, sdk)
    }
  return `${[
    "// Made from docs/openapi.json by `npm run types`; do not edit.",
    'import type { Operation } from "./operation.ts"',
    "",
    "/** The operations that an API key may call, by the names of their commands. */",
    `export const operations: Record<string, Record<string, Operation>> = ${JSON.stringify(all, undefined, 1)}`,
  ].join("\n")}\n`
}

function shapeOf(
  document: Document,
  path: string,
  operation: Operation,
  sdk: { resource: string; method: string; paginated?: boolean },
) {
  const parameters = (operation.parameters ?? []).map(each =>
    each.$ref ? (document.components.parameters[each.$ref.split("/").at(-1) ?? ""] as Parameter) : each,
  )
  const schema = operation.requestBody?.content["application/json"].schema
  const body = schema && resolved(document, schema)
  const isCsv = Object.values(operation.responses).some(({ content }) => content && "text/csv" in content)
  const query = parameters.filter(each => each.in === "query")
  const fields = body
    ? Object.entries(body.properties ?? {}).map(([name, each]) => [
        name,
        fieldOf(document, each, body.required?.includes(name)),
      ])
    : query
        .filter(({ name }) => name !== "offset" && name !== "merchant")
        .map(each => [
          each.name,
          { ...fieldOf(document, each.schema ?? {}, each.required), does: sentence(each.description) },
        ])
  return {
    call: [sdk.resource, sdk.method],
    does: sentence(operation.summary),
    ids: [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name),
    ...(body ? { body: true } : query.length > 0 ? { query: true } : {}),
    ...(sdk.paginated ? { pages: true } : {}),
    ...(isCsv ? { csv: true } : {}),
    ...(parameters.some(each => each.name === "Idempotency-Key") ? { key: true } : {}),
    ...(fields.length > 0 ? { fields: Object.fromEntries(fields) } : {}),
  }
}

function resolved(document: Document, schema: Schema): Schema {
  const name = schema.$ref?.split("/").at(-1)
  return name === undefined
    ? schema
    : { ...document.components.schemas[name], ...(schema.description ? { description: schema.description } : {}) }
}

function fieldOf(document: Document, given: Schema, isRequired = false) {
  const schema = resolved(document, given)
  const inner = (schema.anyOf ?? [schema]).map(each => resolved(document, each))
  const types = new Set(inner.flatMap(({ type, enum: values }) => type ?? (values ? "string" : [])))
  // Amounts are numbers or text, and text keeps every digit.
  const type = types.has("string")
    ? "text"
    : types.has("boolean")
      ? "boolean"
      : types.has("integer") || types.has("number")
        ? "number"
        : "json"
  return {
    type,
    does: sentence(schema.description),
    ...(isRequired ? { required: true } : {}),
    ...(types.has("null") ? { nullable: true } : {}),
  }
}
