/**
 * Compares the row types with the migrated database: a difference would make a query return other values than its type
 * says.
 */
import { readFileSync } from "node:fs"
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openTestDatabase } from "../../../test/database.ts"
import type { OpenDatabase } from "./open.ts"

// Read as text: TypeScript 7 has no stable API, and the files are lists of `name: Type` by their style.
const source = [
  "schema.ts",
  "checkout-rows.ts",
  "payout-rows.ts",
  "webhook-rows.ts",
  "merchant-rows.ts",
  "token-rows.ts",
  "scan-rows.ts",
  "surplus-rows.ts",
  "bundle-rows.ts",
  "escrow-rows.ts",
  "refund-rows.ts",
  "subscription-rows.ts",
  "paywall-rows.ts",
  "put-away-rows.ts",
  "audit-rows.ts",
]
  .map(name => readFileSync(new URL(name, import.meta.url), "utf8").replace(/\/\*\*[\s\S]*?\*\/|\/\/.*/g, ""))
  .join("\n")

const fieldsOf = (body: string): [name: string, type: string][] =>
  body
    .split(/\n(?= {2}\w+:)/)
    .map(field => /^\s*(\w+): ([\s\S]+?)\s*$/.exec(field))
    .flatMap(match => (match ? [[match[1] ?? "", match[2] ?? ""] as [string, string]] : []))

const interfaces = new Map(
  [...source.matchAll(/interface (\w+) \{\n([\s\S]*?)\n?\}\n/g)].map(([, name = "", body = ""]) => [
    name,
    fieldsOf(body),
  ]),
)

const plain: Record<string, string> = {
  bigint: "bigint",
  number: "number",
  boolean: "boolean",
  Date: "Date",
  string: "string",
  Address: "string",
  Hash: "string",
  Buffer: "bytes",
  Uint8Array: "bytes",
}

/** Returns what a select returns for a type, in the terms of {@link columnKind}. */
function typeKind(type: string): string {
  const wrapped = /^(Optional|Generated|Term|ColumnType|JSONColumnType)<([\s\S]*)>$/.exec(type)
  const [, wrapper, inner = ""] = wrapped ?? []
  const selected = wrapper === "ColumnType" || wrapper === "JSONColumnType" ? firstArgument(inner) : inner
  if (wrapper === "JSONColumnType") return `json${/\| null$/.test(selected) ? " or null" : ""}`
  if (wrapper) return typeKind(selected) + (wrapper === "Optional" ? " or null" : "")
  const parts = type.split("|").map(part => part.trim())
  const words = parts.filter(part => part !== "null" && part !== "")
  const kinds = new Set(words.map(word => (/\[\]$/.test(word) ? "array" : (plain[word] ?? "string"))))
  return [...kinds].join(" or ") + (parts.includes("null") ? " or null" : "")
}

function firstArgument(list: string): string {
  let depth = 0
  for (const [i, letter] of [...list].entries()) {
    if ("<{[(".includes(letter)) depth++
    if (">}])".includes(letter)) depth--
    if (letter === "," && depth === 0) return list.slice(0, i)
  }
  return list
}

/** What the driver returns for a column. */
const columnKind: Record<string, string> = {
  int8: "bigint",
  numeric: "bigint",
  int2: "number",
  int4: "number",
  float8: "number",
  text: "string",
  varchar: "string",
  bpchar: "string",
  uuid: "string",
  bool: "boolean",
  timestamptz: "Date",
  json: "json",
  jsonb: "json",
  bytea: "bytes",
}

/** Read by no statement of the service: triggers keep `slugs` and `held_slugs`, and `movements` is a part of other views. */
const untyped = ["slugs", "held_slugs", "movements"]

interface Column {
  table: string
  isView: boolean
  column: string
  type: string
  isNullable: boolean
}

let database: OpenDatabase
let columns: Column[]
beforeAll(async () => {
  database = await openTestDatabase()
  const { rows } = await sql<Column>`
    select c.relname as table, c.relkind = 'v' as "isView", a.attname as column,
      coalesce(base.typname, t.typname) as type,
      not (a.attnotnull or t.typnotnull) as "isNullable"
    from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
      left join pg_type base on base.oid = nullif(t.typbasetype, 0)
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0
      and not a.attisdropped and c.relname <> 'migrations'
    order by 1, a.attnum`.execute(database.db)
  columns = rows.filter(row => !untyped.includes(row.table))
})
afterAll(() => database.close())

const described = new Map((interfaces.get("Database") ?? []).map(([table, type]) => [table, interfaces.get(type)]))

describe("the row types", () => {
  it("name the tables and views of the migrated database, and each has its row's type", () => {
    expect([...described.keys()].sort()).toEqual([...new Set(columns.map(row => row.table))].sort())
    expect([...described].flatMap(([table, fields]) => (fields?.length ? [] : [table]))).toEqual([])
  })

  it("have each column with its type, and null where the column may be null", () => {
    const inDatabase = columns.map(({ table, column, type, isView, isNullable }) => {
      const kind = type.startsWith("_") ? "array" : (columnKind[type] ?? type)
      // Postgres does not know whether a view's column can be null.
      return `${table}.${column}: ${kind}${isNullable && !isView ? " or null" : ""}`
    })
    const views = new Set(columns.filter(row => row.isView).map(row => row.table))
    const inTypes = [...described].flatMap(([table, fields]) =>
      (fields ?? []).map(([column, type]) => {
        const kind = typeKind(type)
        return `${table}.${column}: ${views.has(table) ? kind.replace(/ or null$/, "") : kind}`
      }),
    )
    const without = (these: string[], those: string[]) => these.filter(each => !new Set(those).has(each))
    expect({
      onlyInDatabase: without(inDatabase, inTypes),
      onlyInTypes: without(inTypes, inDatabase),
    }).toEqual({ onlyInDatabase: [], onlyInTypes: [] })
    expect(inTypes.length).toBe(inDatabase.length)
  })
})
