/** Rings in a graph of imports: its strongly connected components of more than one node. */

/**
 * The rings of a graph, each sorted; a node without edges needs no entry.
 * After R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972).
 *
 * @example rings(new Map([["a", ["b"]], ["b", ["a", "c"]]])) // [["a", "b"]]
 */
export function rings(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const found: string[][] = []
  const numbers = new Map<string, number>()
  const stack: string[] = []
  const visit = (node: string): number => {
    const number = numbers.size
    let low = number
    numbers.set(node, number)
    stack.push(node)
    for (const next of graph.get(node) ?? []) {
      if (!numbers.has(next)) low = Math.min(low, visit(next))
      else if (stack.includes(next)) low = Math.min(low, numbers.get(next) ?? low)
    }
    if (low === number) {
      const ring = stack.splice(stack.indexOf(node))
      if (ring.length > 1) found.push(ring.sort())
    }
    return low
  }
  for (const node of graph.keys()) if (!numbers.has(node)) visit(node)
  return found
}
