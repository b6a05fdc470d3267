/** Did-you-mean suggestions: the known name that a mistyped one most likely meant. */

/**
 * The known name that `typed` most likely meant, or undefined if none is close. Close means: ignoring case and
 * separators, at a distance of at most a third of the known name's letters (rustc's measure).
 *
 * @example nearest("spiltId", ["name", "splitId"]) // "splitId"
 */
export function nearest(typed: string, known: readonly string[]): string | undefined {
  const near = known
    .map(name => ({ name, limit: Math.floor(Math.max(name.length, 3) / 3) }))
    // Compares lengths first, because a caller may send a name of 256 KB.
    .filter(({ name, limit }) => Math.abs(letters(typed).length - letters(name).length) <= limit)
    .map(each => ({ ...each, far: distance(letters(typed), letters(each.name)) }))
    .filter(({ far, limit }) => far <= limit)
  return near.sort((a, b) => a.far - b.far)[0]?.name
}

const letters = (name: string): string => name.toLowerCase().replaceAll(/[_-]/g, "")

/**
 * How many insertions, deletions, replacements and swaps of neighbours turn `a` into `b`, changing no letter twice.
 * This is "optimal string alignment": Damerau, "A technique for computer detection and correction of spelling errors",
 * CACM 7 (1964).
 */
export function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number) => rows[i]?.[j] ?? Number.POSITIVE_INFINITY
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    rows.push(row)
    for (let j = 1; j <= b.length; j++) {
      const replaced = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const areSwapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swapped = areSwapped ? at(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY
      row.push(Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, replaced, swapped))
    }
  }
  return at(a.length, b.length)
}
