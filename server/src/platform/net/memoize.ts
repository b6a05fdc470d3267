/** Caches pure functions of a text that nearly always has one of a few values, such as the patterns of the routes. */

const MOST = 1_000
const LONGEST = 200

/**
 * Returns the function with a cache of its answers to a thousand short texts. Callers can send any path, so a full
 * cache is emptied.
 */
export function memoize<R>(answer: (text: string) => R): (text: string) => R {
  const known = new Map<string, R>()
  return text => {
    if (text.length > LONGEST) return answer(text)
    if (known.has(text)) return known.get(text) as R
    if (known.size >= MOST) known.clear()
    const found = answer(text)
    known.set(text, found)
    return found
  }
}
