/** Writes sdk/src/resources.ts: what the SDK calls each operation of the document, with the types of its call. */

/** The parts of an OpenAPI document that are read here. */
export interface Document {
  paths: Record<string, Record<string, Operation>>
  webhooks: Record<string, unknown>
  components: { schemas: Record<string, Schema>; parameters: Record<string, Parameter> }
}
interface Schema {
  $ref?: string
  enum?: string[]
  properties?: Record<string, Schema>
}
interface Parameter {
  $ref?: string
  name: string
  in: string
  required?: boolean
}
interface Operation {
  operationId: string
  summary?: string
  description?: string
  parameters?: Parameter[]
  requestBody?: { required?: boolean }
  responses: Record<string, { content?: Record<string, { schema?: Schema }> }>
  security?: Record<string, unknown>[]
  "x-sdk"?: { resource: string; method: string; paginated?: boolean; envelope?: string }
}

/** Operations that the SDK leaves out, each with the reason. */
export const leftOut: Record<string, string> = {
  health: "for probes of the installation",
  readiness: "for probes of the installation",
  metrics: "for the operator's collector, with a token of its own",
  readSigningKeys: "for libraries that verify tokens: they take its address",
  readReceiptBatch: "bytes, which @sluice/verify reads from any store",
  readDidDocument: "for libraries that verify tokens: they take its address",
}

const nameOf = (schema: Schema | undefined): string | undefined => schema?.$ref?.split("/").at(-1)

/** The text of resources.ts; throws for an operation that has no `x-sdk` and is not left out. */
export function resourcesOf(document: Document): string {
  const table: Record<string, string[]> = {}
  const types: Record<string, string[]> = {}
  for (const [path, item] of Object.entries(document.paths))
    for (const [method, operation] of Object.entries(item)) {
      if (leftOut[operation.operationId]) continue
      const sdk = operation["x-sdk"]
      if (!sdk) throw new Error(`${operation.operationId} has no x-sdk: name it in platform/http/openapi-sdk.ts`)
      const call = callOf(document, method, path, operation)
      const lines = (all: Record<string, string[]>) => {
        all[sdk.resource] ??= []
        return all[sdk.resource] as string[]
      }
      lines(table).push(`    ${sdk.method}: "${call.line}",`)
      lines(types).push(...call.doc, `    ${sdk.method}(${call.parameters}): ${call.answer}`)
    }
  const blocks = (all: Record<string, string[]>) =>
    Object.entries(all).map(([name, lines]) => `  ${name}: {\n${lines.join("\n")}\n  }`)
  const codes = document.components.schemas.Error?.properties?.error?.enum ?? []
  return `${[
    "// Made from docs/openapi.json by `npm run types`; do not edit.",
    'import type * as api from "../../tools/openapi/api.d.ts"',
    'import type { Pages } from "./pages.ts"',
    'import type { RequestOptions } from "./request.ts"',
    "",
    'type Query<O extends keyof api.operations> = NonNullable<api.operations[O]["parameters"]["query"]>',
    "type Body<O extends keyof api.operations> = api.operations[O] extends {",
    '  requestBody?: { content: { "application/json": infer B } }',
    "}",
    "  ? B",
    "  : never",
    "type Good<R> = { [S in keyof R]: S extends 200 | 201 | 202 ? R[S] : never }[keyof R]",
    "type Answer<O extends keyof api.operations> =",
    '  Good<api.operations[O]["responses"]> extends { content: { "application/json": infer A } } ? A : never',
    "/** What a part of an answer is, by its dotted path. */",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text of a type.
    "type At<A, P extends string> = P extends `${infer K}.${infer R}`",
    "  ? K extends keyof A",
    "    ? At<A[K], R>",
    "    : never",
    "  : P extends keyof A",
    "    ? A[P]",
    "    : never",
    "type Item<O extends keyof api.operations, P extends string> =",
    "  At<Answer<O>, P> extends readonly (infer T)[] ? T : never",
    "",
    "/**",
    " * Each operation: its method, its path, and after a space each what else is known: `key` takes an Idempotency-Key,",
    " * `public` needs no credential, `wallet` takes the token of a wallet, `body` and `query` take one as the last argument before the",
    " * options, `csv` answers text, `list=PATH` has pages whose rows are at PATH, and `at=PATH` answers what is at PATH.",
    " */",
    "export const table = {",
    `${blocks(table).join(",\n")},`,
    "} as const",
    "",
    "/** The operations of the service, by what they are about. */",
    "export interface Resources {",
    blocks(types).join("\n"),
    "}",
    "",
    "/** The codes of the service's errors: `docs/developers/errors.md` explains each. */",
    `export type ErrorCode =\n${codes.map(code => `  | "${code}"`).join("\n")}`,
    "",
    "/** The events that the service sends, by name. */",
    `export const eventNames = [\n${Object.keys(document.webhooks)
      .map(name => `  "${name}",`)
      .join("\n")}\n] as const`,
  ].join("\n")}\n`
}

function callOf(document: Document, method: string, path: string, operation: Operation) {
  const { operationId: id, summary, description, security = [] } = operation
  const { paginated, envelope } = operation["x-sdk"] ?? {}
  const all = (operation.parameters ?? []).map(each =>
    each.$ref ? (document.components.parameters[nameOf(each) ?? ""] as Parameter) : each,
  )
  const query = all.filter(each => each.in === "query")
  const [status = "200"] = Object.keys(operation.responses).filter(each => each.startsWith("2"))
  const { content = {} } = operation.responses[status] ?? {}
  const isCsv = "text/csv" in content
  const takes = (name: string) => security.some(each => name in each)
  const marks = [
    ...(all.some(each => each.name === "Idempotency-Key") ? ["key"] : []),
    ...(security.length === 0 ? ["public"] : takes("wallet") ? ["wallet"] : []),
    ...(operation.requestBody ? ["body"] : query.length > 0 ? ["query"] : []),
    ...(isCsv ? ["csv"] : []),
    ...(paginated ? [`list=${envelope}`] : envelope ? [`at=${envelope}`] : []),
  ]
  const body = operation.requestBody
  const first = body ? "body" : query.length > 0 ? "query" : undefined
  const mustQuery = query.some(each => each.required)
  const parameters = [
    ...[...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => `${name}: string`),
    ...(first === "body" ? [`body${body?.required ? "" : "?"}: Body<"${id}">`] : []),
    ...(first === "query" ? [`query${mustQuery ? "" : "?"}: Query<"${id}">`] : []),
    `options?: RequestOptions${all.some(each => each.name === "Idempotency-Key") ? " & { idempotencyKey?: string }" : ""}`,
  ].join(", ")
  const named = nameOf(content["application/json"]?.schema)
  const whole = named ? `api.${named}` : `Answer<"${id}">`
  const answer = isCsv
    ? "Promise<string>"
    : paginated
      ? `Pages<Item<"${id}", "${envelope}">, ${whole}>`
      : `Promise<${envelope ? `At<${whole}, "${envelope}">` : whole}>`
  const words = [summary, description].filter(text => text !== undefined).join(". ")
  return {
    line: [method.toUpperCase(), path, ...marks].join(" "),
    doc: [`    /** ${words.replaceAll("*/", "*\\/")} */`],
    parameters,
    answer,
  }
}
