/** Pure functions of a text that is nearly always one of a few, such as the patterns of the routes. */

const MOST = 1_000
const LONGEST = 200

/** The same function, which remembers its answers to a thousand short texts; callers can send any path, so then it forgets them all. */
export function remember<R>(answer: (text: string) => R): (text: string) => R {
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
