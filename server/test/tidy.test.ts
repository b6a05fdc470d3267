/** The style law, as far as a machine can hold it. */
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { payoutKinds } from "../src/platform/db/payout-kinds.ts"
import { errorTable } from "../src/platform/errors.ts"
import { onBoth, ownDatabase } from "./engines.ts"
import { longFunctions } from "./long-functions.ts"
import { longest } from "./longest.ts"
import { rings } from "./rings.ts"
import { nounsWithContext, verbs } from "./verbs.ts"

const root = new URL("../../", import.meta.url).pathname
const generated = [
  "server/src/platform/chain/abi.ts",
  "server/src/platform/db/rows.ts",
  "server/src/platform/db/schema.sql",
]
const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], { cwd: root })
  .toString()
  .split("\n")
  .filter(path => /\.(tsx?|sql|sol)$/.test(path) && !generated.includes(path))
const textOf = (path: string): string => readFileSync(`${root}${path}`, "utf8")
const sources = files.filter(path => path.startsWith("server/src/") && path.endsWith(".ts"))
const product = sources.filter(path => !/\.test(-d)?\.ts$/.test(path))

/** The wings of `server/src`: each imports only itself and those before it. */
const wings = ["platform", "account", "ledger", "products", "operations"]
const wingOf = (path: string): string | undefined => /^server\/src\/([a-z]+)\//.exec(path)?.[1]
const roomOf = (path: string): string | undefined => /^server\/src\/[a-z]+\/([a-z0-9-]+)\//.exec(path)?.[1]
const folderOf = (path: string): string => path.slice(0, path.lastIndexOf("/"))
const importsOf = (path: string): { target: string; typeOnly: boolean }[] =>
  [...textOf(path).matchAll(/^(?:import|export)\s+(type\s)?[^"']*?from\s+"(\.[^"]+)"/gms)].map(match => ({
    target: new URL(match[2] ?? "", `file:///${path}`).pathname.slice(1),
    typeOnly: match[1] !== undefined,
  }))

/** Lines of the product that match, as `path: line`. */
const hits = (pattern: RegExp, among: string[] = product): string[] =>
  among.flatMap(path =>
    textOf(path)
      .split("\n")
      .filter(line => pattern.test(line))
      .map(line => `${path}: ${line.trim()}`),
  )

describe("the style law", () => {
  it("sees the code", () => {
    expect(product.length).toBeGreaterThan(30)
    expect(importsOf("server/src/app.ts").length).toBeGreaterThan(4)
  })

  it("every file says first what it is for", () => {
    const silent = files.filter(
      path => !path.endsWith(".test.ts") && !/^(#!.*\n)?\s*(\/\*\*|\/\/|--)/.test(textOf(path)),
    )
    expect(silent).toEqual([])
  })

  it("no two statements have one name, as a connection would refuse the second", () => {
    const statements = hits(/^(?!\s*\*).*`\s*(select )?\/\* named: \w+|^\s+(select )?\/\* named: \w+/)
    expect(statements.length).toBeGreaterThan(80)
    const names = statements.map(line => /named: (\w+)/.exec(line)?.[1])
    expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([])
  })

  it("each bench runs on a Postgres that is as durable as one for real money", () => {
    const benches = files.filter(path => path.startsWith("bench/"))
    const started = benches.flatMap(path =>
      [...textOf(path).matchAll(/startPostgres\((\{\s*fsync: true\b)?/g)].map(([, isDurable]) => ({ path, isDurable })),
    )
    expect(started.length).toBeGreaterThan(10)
    expect(started.filter(({ isDurable }) => isDurable === undefined)).toEqual([])
  })

  it("no file is longer than 400 lines", () => {
    expect(product.filter(path => textOf(path).trimEnd().split("\n").length > 400)).toEqual([])
  })

  it("no function is longer than 70 lines, except route tables and those that say `// long:` why", () => {
    const long = product.flatMap(path => longFunctions(textOf(path), 70).map(found => ({ path, ...found })))
    const withoutReason = long.filter(({ reason = "" }) => reason.length < 20)
    expect(withoutReason.map(({ path, name, lines }) => `${path}: ${name} has ${lines} lines`)).toEqual([])
    // Each reason is read here; one whose function was shortened goes.
    expect(long.map(({ name }) => name)).toEqual(["openDeliverer"])
    expect(hits(/\/\/ long:/)).toHaveLength(long.length)
  })

  it("a long function is counted with what is in it, a route table only by its handlers", () => {
    const lines = (n: number) => "  x()\n".repeat(n)
    const route = (n: number) => `app.get("/a", {}, async () => {\n${lines(n)}})\n`
    const found = (text: string) => longFunctions(text, 20).map(({ name, lines, reason }) => ({ name, lines, reason }))
    const long = { name: "f", lines: 21, reason: undefined }
    expect(found(`export function f(app: App): void {\n${lines(19)}}\n`)).toEqual([long])
    expect(found(`export const f = () => {\n${lines(19)}}\n`)).toEqual([long])
    expect(found(`function f() {\n${lines(10)}function g() {\n${lines(7)}}\n}\n`)).toEqual([long])
    expect(found(`function f() {\n${lines(18)}}\n`)).toEqual([])
    expect(found(`/** Does. */\n// long: why\nfunction f() {\n${lines(19)}}\n`)).toEqual([{ ...long, reason: "why" }])
    const table = (more: string) => `function f(app: Server) {\nconst tags = ["a"]\n${route(10)}${route(5)}${more}}\n`
    expect(found(table(""))).toEqual([])
    expect(found(table("listRoute(app, ctx, {})\n"))).toEqual([])
    expect(found(table("listRoute(other, ctx, {})\n"))).toEqual([{ ...long, lines: 23 }])
    expect(found(table("other()\n"))).toEqual([{ ...long, lines: 23 }])
    expect(found(table("const help = () => 1\n"))).toEqual([{ ...long, lines: 23 }])
    expect(found(`function f(app: Server) {\n${route(20)}}\n`)).toEqual([{ ...long, lines: 22 }])
  })

  it("nothing is packed to save lines: no literal is spread into another one", () => {
    const code = files.filter(path => !path.endsWith("tidy.test.ts"))
    expect(hits(/\.\.\.\{/, code)).toEqual([])
    expect(hits(/^\s*\.\.\.\(?\[(?!\.\.\.|string)[^\]]*\]( as const\))?,?$/, code)).toEqual([])
    // Nor are values put into an array to be declared in one line.
    expect(hits(/\b(const|let) \[\w+(, \w+)+\] = \[(?!.*\]\.)(?!\.\.\.).*\]$/, code)).toEqual([])
  })

  it("only the files of config read the environment", () => {
    const readers = hits(/process\.env/).filter(hit => !/^server\/src\/platform\/config\/[\w-]+\.ts/.test(hit))
    expect(readers).toEqual([])
  })

  it("no float comes near money", () => {
    const moneyRooms = [
      "money",
      "scanner",
      "settlement",
      "paywalls",
      "checkouts",
      "deposits",
      "escrow",
      "splits",
      "payouts",
      "relays",
      "txmanager",
      "reconciliation",
    ]
    const rooms = product.filter(path => moneyRooms.includes(roomOf(path) ?? ""))
    const allowed = /Number\((durationS|depth|required|confirmations)/
    expect(hits(/parseFloat|toFixed|(?<!Type\.)\bNumber\(/, rooms).filter(hit => !allowed.test(hit))).toEqual([])
  })

  it("a wing imports only itself and the wings before it", () => {
    const wrong = product.flatMap(path => {
      const wing = wings.indexOf(wingOf(path) ?? "")
      const outside = ({ target }: { target: string }) => {
        if (wing < 0 || !target.startsWith("server/")) return false
        const other = wings.indexOf(wingOf(target) ?? "")
        return other < 0 ? !/package\.json$/.test(target) : other > wing
      }
      return importsOf(path)
        .filter(outside)
        .map(({ target }) => `${path} imports ${target}`)
    })
    expect(wrong).toEqual([])
    const inWings = product.filter(path => wingOf(path) !== undefined)
    expect(inWings.filter(path => !wings.includes(wingOf(path) ?? ""))).toEqual([])
    // The program and its lists alone stand outside.
    const outside = product.filter(path => wingOf(path) === undefined)
    expect(outside.map(path => path.slice("server/src/".length))).toEqual([
      "app.ts",
      "connect-networks.ts",
      "lanes.ts",
      "main.ts",
      "sales.ts",
      "worker.ts",
    ])
  })

  it("no folders import each other in a ring, and no files, not even for types", () => {
    const files = new Map(product.map(path => [path, importsOf(path).map(({ target }) => target)]))
    expect(rings(files)).toEqual([])
    const folders = new Map<string, string[]>()
    for (const path of product) {
      // Files at the top of a wing, such as `context.ts` and `ids.ts`, are everybody's.
      if (roomOf(path) === undefined) continue
      const values = importsOf(path).flatMap(({ target, typeOnly }) =>
        typeOnly || roomOf(target) === undefined ? [] : folderOf(target),
      )
      folders.set(folderOf(path), [...(folders.get(folderOf(path)) ?? []), ...values])
    }
    expect(rings(folders)).toEqual([])
    const ring = new Map([
      ["a", ["b"]],
      ["b", ["c", "d"]],
      ["c", ["a"]],
    ])
    expect(rings(ring)).toEqual([["a", "b", "c"]])
  })

  it("docs/contributors/architecture.md says what each folder holds", () => {
    const table = readFileSync(`${root}docs/contributors/architecture.md`, "utf8").split("## Where things are")[1] ?? ""
    const rooms = new Set(product.flatMap(path => roomOf(path) ?? []))
    expect([...rooms].filter(room => !table.includes(`\`${room}\``))).toEqual([])
  })

  it("the engine knows no lane and no feature: it imports the platform alone", () => {
    const engine = product.filter(path => roomOf(path) === "txmanager")
    expect(engine.length).toBeGreaterThan(20)
    const wrong = engine.flatMap(path =>
      importsOf(path)
        .filter(({ target }) => wingOf(target) !== "platform" && roomOf(target) !== "txmanager")
        .map(({ target }) => `${path} imports ${target}`),
    )
    expect(wrong).toEqual([])
  })

  it("a decision about a kind of payout is a column of its table", () => {
    // A feature may ask for its own kind: an escrow's calls, and what an operator restores.
    const rooms = product.filter(path => ["payouts", "relays", "txmanager"].includes(roomOf(path) ?? ""))
    const names = Object.keys(payoutKinds).join("|")
    expect(hits(new RegExp(`\\bkind\\)? [!=]== "(${names})"|case "(${names})":`), rooms)).toEqual([])
  })

  it("no folder uses another's routes", () => {
    const wrong = product.flatMap(path =>
      importsOf(path)
        .filter(
          ({ target }) => /routes\.ts$/.test(target) && wingOf(path) !== undefined && roomOf(target) !== roomOf(path),
        )
        .map(({ target }) => `${path} imports ${target}`),
    )
    expect(wrong).toEqual([])
  })

  it("a file of a feature without a Context is pure: nothing waits in it, and no clock or chance; or says `I/O:` why", () => {
    // What has no context, database or endpoint in its arguments has nothing to reach them with: the types hold the rest.
    const features = product.filter(path => ["account", "ledger", "products"].includes(wingOf(path) ?? ""))
    const pure = features.filter(
      path =>
        !importsOf(path).some(({ target }) => /src\/platform\/(context|db\/open)\.ts$/.test(target)) &&
        !/\bSelling(Context|Tx)\b/.test(textOf(path)),
    )
    expect(pure.length).toBeGreaterThan(15)
    const impure = /\b(async|await)\b|\bfetch\(|\bsql`|Date\.now|new Date\(\)|Math\.random|process\./
    expect(
      pure.filter(
        path =>
          impure.test(textOf(path).replaceAll(/\bfrom "[^"]+"/g, "")) && !/^\/\/ I\/O: .{20,}/m.test(textOf(path)),
      ),
    ).toEqual([])
  })

  it("a file whose name has no verb imports no context and no database", () => {
    // `<noun>.ts` is pure, `<verb>-<noun>.ts` does I/O, `queries.ts` is SQL, and `routes.ts` and `*-routes.ts` are HTTP.
    const ready = (path: string): boolean =>
      importsOf(path).some(({ target }) => /\/platform\/(context|db\/open)\.ts$/.test(target)) ||
      /\bSelling(Context|Tx)\b/.test(textOf(path))
    const wrong = product.filter(path => {
      if (wingOf(path) === undefined || path in nounsWithContext || path.includes("/migrations/")) return false
      const name = path.slice(path.lastIndexOf("/") + 1, -".ts".length)
      return !/(^|-)(routes?|queries)$/.test(name) && !verbs.has(name.split("-")[0] ?? "") && ready(path)
    })
    expect(wrong).toEqual([])
    // An exception that needs none any more goes.
    expect(Object.keys(nounsWithContext).filter(path => !product.includes(path) || !ready(path))).toEqual([])
  })

  it("what takes the context of a transaction takes no network that can be asked", () => {
    // The context has none, by its type (`context.test-d.ts`); this keeps one from being handed in beside it.
    const wrong = product.filter(path =>
      /\(\s*\w+: TxContext\b[^()]*: (Network|Quorum|Endpoint|Lane|ReachableChain)\b/.test(textOf(path)),
    )
    expect(wrong).toEqual([])
  })

  it("lists go into statements by sqlArray alone, which quotes what is in them", () => {
    expect(
      hits(/\{\$\{.*\.join\("?,?"?\)\}\}/).filter(hit => !/db\/sql-array|http\/run-idempotently/.test(hit)),
    ).toEqual([])
  })

  it("no row is locked against the foreign keys that point at it", () => {
    // An insert with a foreign key holds FOR KEY SHARE on its parent until the commit. FOR UPDATE waits for that, so two
    // transactions that insert first and lock the parent afterwards wait for each other. No primary key ever changes.
    expect(hits(/forUpdate\(|for update/i)).toEqual([])
  })

  it("tests do not sleep, are not skipped and are not alone", () => {
    const tests = files.filter(path => path.endsWith(".test.ts") && !path.endsWith("tidy.test.ts"))
    expect(hits(/\b(it|describe|test)\.(only|skip|todo)\b|setTimeout\(r(esolve)?,/, tests)).toEqual([])
  })

  it("tests change the environment by `vi.stubEnv`: a copy in its place stays with the files that run after them", () => {
    // `process.env` is not a plain object: where another one has taken its place, a change of TZ has no effect.
    const tests = files.filter(path => path.endsWith(".test.ts"))
    expect(hits(/process\.env(\.\w+)? = |assign\(process\.env,/, tests)).toEqual([])
  })

  it("a file throws `ApiError` or returns faults, not both", () => {
    const named = /^(export )?(async )?(function|const) \w*([fF]aults?|[rR]efusalsOf)\b(\(| = \()/m
    const returnsFaults = (text: string) => named.test(text) || /\): ([\w<{ ;:]*[ <])?ErrorDetail\b/.test(text)
    const both = product.filter(path => {
      const text = textOf(path)
      return (
        path !== "server/src/platform/errors.ts" && /throw (new ApiError|invalid)\(/.test(text) && returnsFaults(text)
      )
    })
    expect(both).toEqual([])
    expect(product.filter(path => returnsFaults(textOf(path))).length).toBeGreaterThan(4)
  })

  it("the test files that start first are there", () => {
    expect(longest.filter(path => !files.includes(path))).toEqual([])
  })

  it("each folder with statements has a test on the embedded database too", () => {
    const named = Object.keys(onBoth)
    expect(named.filter(path => !files.includes(path))).toEqual([])
    expect([...ownDatabase, ...named].filter(path => !path.endsWith(".test.ts"))).toEqual([])
    const rooms = new Set(product.filter(path => /(select|delete)From\(|sql(<.*>)?`/.test(textOf(path))).map(roomOf))
    // Programs run the statements of these on the embedded database in `e2e`: those of an operator and of the reconciliation in
    // `wallet.test.ts`, of pages and of the scanner in `walkthrough.test.ts`. Those of `chain` name no table.
    const inPrograms = ["cli", "operator", "pages", "reconciliation", "sandbox", "scanner"]
    for (const elsewhere of ["chain", ...inPrograms, undefined]) rooms.delete(elsewhere)
    expect(rooms.size).toBeGreaterThan(15)
    expect([...rooms].filter(room => !named.some(path => roomOf(path) === room))).toEqual([])
  })

  it("every error code is thrown somewhere, and no status stands at a throw site", () => {
    const text = product
      .filter(path => !path.endsWith("errors.ts"))
      .map(textOf)
      .join("\n")
    const unused = Object.keys(errorTable).filter(
      code =>
        !text.includes(`"${code}"`) &&
        !textOf("server/src/platform/errors.ts").includes(`new ApiError("${code}"`) &&
        !text.includes(`errorTable.${code}`),
    )
    expect(unused).toEqual([])
    expect(hits(/\.code\([345]\d\d\)/)).toEqual([])
  })
})
