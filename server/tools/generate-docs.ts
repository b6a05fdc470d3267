/**
 * Generates docs/openapi.json, docs/developers/errors.md, docs/merchants/roles.md, docs/operators/settings.md, docs/developers/cli.md and cli/src/starters.ts from the code. With --check it writes nothing, and
 * fails when a committed file differs from the generated one.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { cliDocument } from "../../cli/src/document.ts"
import { openApp } from "../src/app.ts"
import type { SellingContext } from "../src/ledger/settlement/sellable.ts"
import { listSettings, readSettings } from "../src/platform/config/read-settings.ts"
import { secretFileNames } from "../src/platform/config/secret-files.ts"
import { type ErrorCode, errorTable } from "../src/platform/errors.ts"
import { openLog } from "../src/platform/log.ts"
import { sales } from "../src/sales.ts"
import { rolesDocument } from "./roles-document.ts"

const MADE_BY = "<!-- Made from the code by `npm run docs`; do not edit. -->"

/** The routes are declared and not called, so a small part of the context is enough. */
async function openDocument() {
  const settings = readSettings({ METRICS_TOKEN: "so that /metrics is a route" })
  const context = { settings, sells: sales, log: openLog("silent"), wakes: { onChange: () => {} } }
  const app = openApp(context as unknown as SellingContext, { verify: async () => undefined })
  await app.ready()
  const document = app.swagger()
  await app.close()
  return document
}

interface Responses {
  [status: string]: { $ref?: string }
}

/** `METHOD path` of each route, and the codes that it can answer. */
function routesOf(document: { paths?: object }): { route: string; codes: string[] }[] {
  const paths = Object.entries(document.paths ?? {}) as [string, Record<string, { responses: Responses }>][]
  return paths.flatMap(([path, item]) =>
    Object.entries(item).map(([method, { responses }]) => ({
      route: `${method.toUpperCase()} ${path}`,
      codes: Object.values(responses).flatMap(({ $ref = "" }) => $ref.split("/").at(-1)?.split(".") ?? []),
    })),
  )
}

/** Names for sets of routes whose errors can be described together, widest first. */
const groups: [name: string, has: RegExp][] = [
  ["every route", /./],
  ["every route under `/api`", / \/api\//],
  ["every route under `/api/console`", / \/api\/console\//],
  ["every route but a GET", /^(?!GET)/],
  ["every route with a parameter in its path", /\{/],
]

function errorsDocument(document: object): string {
  const routes = routesOf(document)
  const whereOf = (code: ErrorCode): string => {
    const among = routes.filter(({ codes }) => codes.includes(code)).map(({ route }) => route)
    const group = groups.find(([_, has]) => {
      const members = routes.filter(({ route }) => has.test(route))
      return members.every(({ route }) => among.includes(route))
    })
    const others = among.filter(route => !group?.[1].test(route)).map(route => `\`${route}\``)
    return [...(group ? [group[0]] : []), ...others].join(", ")
  }
  const sections = (Object.keys(errorTable) as ErrorCode[]).map(code => {
    const { status, message, help } = errorTable[code]
    return `## ${code}\n\n**${status}** ${message}\n\n${help}\n\nAnswered by: ${whereOf(code)}.`
  })
  return `${MADE_BY}

# Errors

Every error has the same flat shape. \`error\` is for programs and never changes. \`message\` is for people and can change. \`requestId\` is
also in the header \`X-Request-Id\` and in the service's log.

\`\`\`json
{
  "error": "VALIDATION_ERROR",
  "message": "${errorTable.VALIDATION_ERROR.message}",
  "requestId": "3f0c2d5e-7a41-4b8e-9c55-0d6f1a2b3c4d",
  "details": [{ "path": "pirce", "message": "\`pirce\` is not a field of this request: did you mean \`price\`?" }]
}
\`\`\`

\`details\` is present if individual fields are at fault. A \`RATE_LIMITED\` error has \`retryAfter\`, the seconds to wait.

${sections.join("\n\n")}
`
}

function settingsDocument(): string {
  const row = (cells: string[]) => `| ${cells.map(cell => cell.replaceAll("|", "\\|")).join(" | ")} |`
  const rows = listSettings().map(({ name, meaning, standsIn, live }) => row([`\`${name}\``, meaning, standsIn, live]))
  return `${MADE_BY}

# Settings

Settings are environment variables that the service reads once, at startup. It reports all invalid settings together. \`<NETWORK>\` is
a network's name in upper case, with \`_\` instead of \`-\`, as in \`RPC_BASE_SEPOLIA\`.

With \`--env-file FILE\`, a command also reads variables from a file with one NAME=VALUE on each line (\`sluice --help\` has the details).
No character in a value has a special meaning. A variable that is already set takes precedence over the file.

A secret can be in a file of its own, which one of these settings names: ${secretFileNames.map(name => `\`${name}\``).join(", ")}.
One newline at the end of the file is ignored. The service refuses to start if a secret is set in both forms.

| setting | meaning | default | live mode requires |
|---|---|---|---|
${rows.join("\n")}

## What the scan costs

While no payments arrive, each RPC endpoint of each network gets 198,000 calls a day in 68,000 requests. The scan makes 104,000 of these
calls: six in each of 17,280 rounds, at the default \`VERIFY_INTERVAL\` of 5 seconds. The other calls are about the wallets, money that
left receiving addresses, and other tokens. With a \`VERIFY_INTERVAL\` of one minute, there are 104,000 calls in total, and payments
are confirmed up to a minute later. 27,000 of the 198,000 calls are \`eth_getLogs\` (12,000 with an interval of one minute). For every
thousand further addresses in the scan, each round makes one more call.

\`script/bench calls\` measured this on 2026-11-28 on a busy machine, with one process, three endpoints and a block every two seconds. It
extrapolates from 60 to 120 seconds to a day, without hourly and daily jobs. In an earlier run, 20 payments were confirmed 2.8 s (p50)
and at most 6.1 s after they had enough confirmations.
`
}

const document = await openDocument()
/** The examples' files as a module, because the command line is packed without them. */
function startersModule(): string {
  const folder = fileURLToPath(new URL("../../examples", import.meta.url))
  const all = ["express", "fastify", "hono", "next", "fastapi"].map(framework => {
    const names = readdirSync(`${folder}/${framework}`, { recursive: true }).map(String)
    const files = names.filter(name => /\.\w+$/.test(name) && !name.includes("node_modules")).sort()
    return [
      framework,
      Object.fromEntries(files.map(name => [name, readFileSync(`${folder}/${framework}/${name}`, "utf8")])),
    ]
  })
  return `// Made from examples/ by \`npm run docs\`; do not edit.

/** The files of an example for each framework, by their names. */
export const starters: Record<string, Record<string, string>> = ${JSON.stringify(Object.fromEntries(all), undefined, 2)}
`
}

const files = {
  "cli/src/starters.ts": startersModule(),
  "docs/openapi.json": `${JSON.stringify(document, null, 2)}\n`,
  "docs/developers/errors.md": errorsDocument(document),
  "docs/developers/cli.md": `${MADE_BY}\n\n${cliDocument()}`,
  "docs/merchants/roles.md": `${MADE_BY}\n\n${rolesDocument()}`,
  "docs/operators/settings.md": settingsDocument(),
}
for (const [name, text] of Object.entries(files)) {
  const path = fileURLToPath(new URL(`../../${name}`, import.meta.url))
  if (!process.argv.includes("--check")) writeFileSync(path, text)
  else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
    process.stderr.write(`${name} is not what the code gives: run \`npm run docs\` and commit it\n`)
    process.exitCode = 1
  }
}
