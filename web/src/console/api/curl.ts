/** A request as a command for a terminal, with a key in place of the person's cookie. */
import { facts } from "./facts.ts"

/** A request of a page. */
export interface Shown {
  method?: "GET" | "POST" | "PUT" | "DELETE"
  path: string
  query?: Record<string, unknown>
  body?: unknown
}

const quoted = (text: string): string => `'${text.replace(/'/g, `'\\''`)}'`

/** The path with its query; empty values are left out. */
export function pathOf({ path, query = {} }: Pick<Shown, "path" | "query">): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value))
  return search.size > 0 ? `${path}?${search}` : path
}

export function curlOf({ method = "GET", path, query, body }: Shown): string {
  const lines = [`curl ${quoted(facts.consoleUrl + pathOf({ path, ...(query ? { query } : {}) }))}`]
  if (method !== "GET" && !(method === "POST" && body !== undefined)) lines[0] += ` -X ${method}`
  lines.push(`-H "x-api-key: $SLUICE_API_KEY"`)
  if (body !== undefined) lines.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`)
  return lines.join(" \\\n  ")
}
