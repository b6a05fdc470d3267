/** The pages of the API reference, one for each tag of the document: every operation with its fields, curl, TypeScript and errors. Pure. */
import { leftOut } from "../tools/openapi/sdk-resources.ts"
import type { Source } from "./stage.ts"

interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  properties?: Record<string, Schema>
  required?: string[]
  items?: Schema
  anyOf?: Schema[]
  allOf?: Schema[]
  oneOf?: Schema[]
  enum?: unknown[]
  const?: unknown
}
interface Parameter {
  $ref?: string
  name?: string
  in?: string
  required?: boolean
  description?: string
  schema?: Schema
  example?: string
}
type Media = Record<string, { schema?: Schema; example?: unknown }>
interface Operation {
  operationId: string
  summary?: string
  description?: string
  tags?: string[]
  parameters?: Parameter[]
  requestBody?: { content: Media }
  responses: Record<string, { $ref?: string; description?: string; content?: Media }>
  security?: Record<string, unknown>[]
  "x-sdk"?: { resource: string; method: string }
}
interface Document {
  tags: { name: string; description: string }[]
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema>; parameters: Record<string, Parameter> }
}
interface Call extends Operation {
  method: string
  path: string
}

const METHODS = ["get", "post", "put", "patch", "delete"]
const nameOf = (ref: string): string => ref.split("/").at(-1) ?? ""
const cell = (text = ""): string =>
  text
    .replace(/\s*\n\s*/g, " ")
    .replace(/\|/g, "\\|")
    .replace(/</g, "&lt;")
    .replace(/\{/g, "&#123;")

/** The path of a tag's page below `docs/`. */
const slugOfTag = (tag: string): string => `reference/${tag.replace(/\W+/g, "-")}`

/** A summary; of an operation whose twin has an API key, with the console named. */
function headingOf({ summary, operationId, path, tags }: Call, { paths }: Document): string {
  const words = summary ?? operationId
  const twins = Object.values(paths).flatMap(methods => Object.values(methods))
  const isTwin = twins.some(
    each => each.operationId !== operationId && each.summary === words && each.tags?.[0] === tags?.[0],
  )
  return isTwin && path.startsWith("/api/console/") ? `${words} (console)` : words
}

/** One page for each tag, and one that lists them. */
export function referencePages(document: Document): Source[] {
  const calls = Object.entries(document.paths).flatMap(([path, methods]) =>
    METHODS.flatMap(method => (methods[method] ? [{ ...methods[method], method: method.toUpperCase(), path }] : [])),
  )
  const pages = document.tags.flatMap(({ name, description }) => {
    const ofTag = calls.filter(({ tags }) => tags?.[0] === name)
    if (ofTag.length === 0) return []
    const title = `${name.charAt(0).toUpperCase()}${name.slice(1)}`
    return [
      {
        slug: slugOfTag(name),
        text: `# ${title}\n\n${description}.\n\n${ofTag.map(each => section(each, document)).join("\n\n")}\n`,
      },
    ]
  })
  return [{ slug: "reference/index", text: overview(document, calls) }, ...pages]
}

function overview({ tags }: Document, calls: readonly Call[]): string {
  const rows = tags.flatMap(({ name, description }) => {
    const n = calls.filter(call => call.tags?.[0] === name).length
    return n === 0 ? [] : [`| [${name}](/docs/${slugOfTag(name)}/) | ${cell(description)} | ${n} |`]
  })
  return `# API reference

Every operation, with its fields, an example in curl and in TypeScript, and the errors that it can answer. All amounts are decimal
strings. A request with a field that the operation does not know is refused.

The examples read three variables: the service's URL, an API key, and a member's console token for what no key may do. In the sandbox,
\`.data/sandbox.json\` contains all three. Subscribers' routes read \`WALLET_TOKEN\`, which \`POST /api/subscriptions/token\` returns.

\`\`\`sh
export SLUICE_URL=$(node -p "require('./.data/sandbox.json').baseUrl")
export SLUICE_API_KEY=$(node -p "require('./.data/sandbox.json').merchants[0].apiKey")
export TOKEN=$(node -p "require('./.data/sandbox.json').merchants[0].accessToken")
\`\`\`

**Try it**, at each operation, opens the operation in the browser: paste your own key under **Authorize**, and send the example. You can also
download the [OpenAPI document](/docs/openapi.json).

| operations | what they do | |
|---|---|---|
${rows.join("\n")}
`
}

function section(call: Call, document: Document): string {
  const parameters = (call.parameters ?? []).map(each =>
    each.$ref ? (document.components.parameters[nameOf(each.$ref)] ?? each) : each,
  )
  const body = call.requestBody?.content["application/json"]
  const needed = parameters.filter(each => each.in === "query" && each.required === true)
  const query = needed.map(({ name = "", example = "" }): [string, string] => [name, example])
  const parts = [
    `## ${headingOf(call, document)}`,
    `\`${call.method} ${call.path}\` (\`${call.operationId}\`) · [Try it](/docs/try#/${encodeURIComponent(call.tags?.[0] ?? "")}/${call.operationId})`,
    call.description ? call.description.replace(/</g, "&lt;") : "",
    table(
      "Parameters",
      parameters.map(each => row(each.name ?? "", each.schema, each.required === true, each.description, each.in)),
    ),
    table("Body", fieldsOf(body?.schema, document)),
    `**curl**\n\n\`\`\`sh\n${curl(call, query, body?.example)}\n\`\`\``,
    call["x-sdk"] && !leftOut[call.operationId]
      ? `**TypeScript**\n\n\`\`\`ts\n${typescript(call, query, body?.example)}\n\`\`\``
      : "",
    table(
      "Answer",
      fieldsOf(answerOf(call), document).map(each => each.replace(", required |", " |")),
    ),
    errorsOf(call),
  ]
  return parts.filter(part => part !== "").join("\n\n")
}

const table = (title: string, rows: readonly string[]): string =>
  rows.length === 0 ? "" : `**${title}**\n\n| field | type | meaning |\n|---|---|---|\n${rows.join("\n")}`

const row = (
  name: string,
  schema: Schema | undefined,
  isRequired: boolean,
  description?: string,
  place?: string,
): string =>
  `| \`${name}\`${isRequired ? ", required" : ""} | ${cell(typeOf(schema))}${place === undefined ? "" : `, ${place}`} | ${cell(description ?? schema?.description)} |`

/** The fields of a schema, or of what it refers to; those of what is nested are on the page of their own name. */
function fieldsOf(schema: Schema | undefined, document: Document): string[] {
  if (!schema) return []
  if (schema.$ref) return fieldsOf(document.components.schemas[nameOf(schema.$ref)], document)
  if (schema.allOf) return schema.allOf.flatMap(each => fieldsOf(each, document))
  const required = new Set(schema.required)
  return Object.entries(schema.properties ?? {}).map(([name, each]) => {
    const named = each.$ref ? document.components.schemas[nameOf(each.$ref)] : undefined
    return row(name, each, required.has(name), each.description ?? named?.description)
  })
}

function typeOf(schema: Schema | undefined): string {
  if (!schema) return ""
  if (schema.$ref) return nameOf(schema.$ref)
  if (schema.const !== undefined) return JSON.stringify(schema.const)
  if (schema.enum)
    return schema.enum.length > 6 ? "text, one of several" : schema.enum.map(each => JSON.stringify(each)).join(" or ")
  const several = schema.anyOf ?? schema.oneOf
  if (several) return [...new Set(several.map(typeOf))].join(" or ")
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`
  return [schema.type ?? "any"].flat().join(" or ")
}

const answerOf = ({ responses }: Call): Schema | undefined =>
  Object.entries(responses).find(([status]) => status.startsWith("2"))?.[1].content?.["application/json"]?.schema

type Query = readonly [name: string, example: string][]

/** What a request is authorized with where no API key will do, as a shell variable. */
const TOKENS: Record<string, string> = { bearer: "TOKEN", wallet: "WALLET_TOKEN", metrics: "METRICS_TOKEN" }

/** The path with names of shell variables in the place of its parameters, and the query that it needs. */
function curl({ method, path, security }: Call, query: Query, example: unknown): string {
  const url = path.replace(/\{(\w+)\}/g, (_, name: string) => `$${name.replace(/([A-Z])/g, "_$1").toUpperCase()}`)
  const schemes = (security ?? []).flatMap(each => Object.keys(each))
  const key = schemes.includes("apiKey")
  const token = key ? undefined : schemes.map(each => TOKENS[each]).find(name => name !== undefined)
  const search = query.length === 0 ? "" : `?${new URLSearchParams(query.map(each => [...each]))}`
  return [
    `curl ${method === "GET" ? "" : `-X ${method} `}"$SLUICE_URL${url}${search}"`,
    ...(key ? ['-H "x-api-key: $SLUICE_API_KEY"'] : []),
    ...(token ? [`-H "Authorization: Bearer $${token}"`] : []),
    ...(example === undefined
      ? []
      : ["-H 'Content-Type: application/json'", `-d '${JSON.stringify(example).replace(/'/g, "'\\''")}'`]),
  ].join(" \\\n  ")
}

function typescript({ "x-sdk": sdk, path }: Call, query: Query, example: unknown): string {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name)
  const needed = query.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ")
  const given = [
    ...names,
    ...(needed === "" ? [] : [`{ ${needed} }`]),
    ...(example === undefined
      ? []
      : [JSON.stringify(example, undefined, 2).replace(/^(\s*)"([a-zA-Z]\w*)":/gm, "$1$2:")]),
  ]
  return `const answer = await sluice.${sdk?.resource}.${sdk?.method}(${given.join(", ")})`
}

function errorsOf({ responses }: Call): string {
  const codes = Object.entries(responses).flatMap(([status, { $ref }]) =>
    /^[45]/.test(status) && $ref ? nameOf($ref).split(".") : [],
  )
  return codes.length === 0
    ? ""
    : `**Errors** ${codes.map(code => `[\`${code}\`](/docs/developers/errors/#${code})`).join(", ")}`
}
