/** Matches a request to a route of a bundle. Pure. */
import { type Path, readPath } from "./path.ts"

/** The methods of routes. A HEAD request uses the route of its GET. */
export const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const
export type Method = (typeof methods)[number]

/** One part of a template: literal text, or null for a parameter. */
type Part = string | null

/** A parsed path template such as `/users/:id`. */
export interface Template {
  parts: readonly Part[]
  /** The same for all templates that match the same paths. */
  shape: string
}

/** The fields that any matched route needs. */
interface Matchable {
  method: Method
  template: Template
}

/** Parses a path template, or returns what is wrong as a clause whose subject is the template. */
export function readTemplate(text: string): Template | string {
  const path = readPath(text)
  if (typeof path === "string") return path
  // Only an unencoded colon marks a parameter; an encoded one is part of the text.
  const raw = text.slice(1).split("/")
  const parts = path.parts.map((part, i): Part => (raw[i]?.startsWith(":") ? null : part))
  const bad = raw.find(part => part.startsWith(":") && !/^:[a-zA-Z_]\w{0,39}$/.test(part))
  if (bad !== undefined)
    return "must name each parameter with a letter and up to 39 letters, digits or _ after the colon"
  // Parts contain no slashes, so different templates have different shapes.
  return { parts, shape: parts.map(part => (part === null ? ":" : `=${part}`)).join("/") }
}

/**
 * Returns the route of a request. If several match, the one with a literal part where the others have a parameter
 * wins, from left to right. Case and a trailing slash matter.
 */
export function matchRoute<R extends Matchable>(routes: readonly R[], method: string, { parts }: Path): R | undefined {
  const wanted = method === "HEAD" ? "GET" : method
  let best: R | undefined
  for (const route of routes)
    if (route.method === wanted && matches(route.template, parts) && (!best || isBefore(route.template, best.template)))
      best = route
  return best
}

const matches = ({ parts: wanted }: Template, parts: readonly string[]): boolean =>
  wanted.length === parts.length && wanted.every((part, i) => (part === null ? parts[i] !== "" : part === parts[i]))

/** Whether the first of two templates that match the same path is more specific. */
function isBefore({ parts }: Template, other: Template): boolean {
  const differing = parts.findIndex((part, i) => (part === null) !== (other.parts[i] === null))
  return differing !== -1 && parts[differing] !== null
}
