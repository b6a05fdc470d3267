/** The functions of a TypeScript file that are longer than a limit, for the style law. */
import { parseAst } from "vitest/node"

export interface LongFunction {
  name: string
  /** From its first to its last line; inner functions count too. */
  lines: number
  /** What the comment `// long: …` directly above it says; undefined where there is none. */
  reason: string | undefined
}

interface Node {
  type: string
  start: number
  end: number
  [key: string]: unknown
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as Node).type === "string"

const childrenOf = (node: Node): Node[] => Object.values(node).flat().filter(isNode)

const isFunction = ({ type }: Node): boolean =>
  /^(Function(Declaration|Expression)|ArrowFunctionExpression)$/.test(type)

const holdsFunction = (node: Node): boolean => isFunction(node) || childrenOf(node).some(holdsFunction)

/**
 * Whether the body only registers routes on the function's first parameter, beside constants without functions (paths,
 * tags). The handlers are functions of their own.
 */
function isRouteTable({ params, body }: Node): boolean {
  const app = (params as Node[])[0]?.name
  const registers = ({ callee, arguments: given }: Node): boolean => {
    const { name, object, property } = (callee ?? {}) as { name?: string; object?: Node; property?: Node }
    if (name === "listRoute") return (given as Node[])[0]?.name === app
    return object?.name === app && /^(get|post|put|delete|register)$/.test(`${property?.name}`)
  }
  const statements = (body as Node).body as Node[] | undefined
  return (
    app !== undefined &&
    statements?.length !== undefined &&
    statements.every(
      each =>
        (each.type === "ExpressionStatement" && registers(each.expression as Node)) ||
        (each.type === "VariableDeclaration" && !holdsFunction(each)),
    )
  )
}

/** The functions of `text` with more than `limit` lines, except route tables. */
export function longFunctions(text: string, limit: number): LongFunction[] {
  const lineAt = (offset: number): number => text.slice(0, offset).split("\n").length
  const linesOf = text.split("\n")
  const found: LongFunction[] = []
  const visit = (node: Node, name: string): void => {
    const named = (node.id ?? node.key) as Node | undefined
    const inner = typeof named?.name === "string" ? named.name : name
    if (isFunction(node) && !isRouteTable(node)) {
      const first = lineAt(node.start)
      const lines = lineAt(node.end) - first + 1
      const [, reason] = /^\s*\/\/ long: (.*)$/.exec(linesOf[first - 2] ?? "") ?? []
      if (lines > limit) found.push({ name: inner, lines, reason })
    }
    for (const child of childrenOf(node)) visit(child, inner)
  }
  for (const node of parseAst(text, { lang: "ts" }).body) visit(node as unknown as Node, "")
  return found
}
