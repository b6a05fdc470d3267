/** Text that others wrote, as a page may show it. Pure: the server and the browser both use it. */

/** Controls but tab and newline, and what is not seen but joiners and variants: marks and overrides of direction, tags, fillers. */
const UNSEEN = /(?![\t\n])\p{Cc}|(?!\p{Join_Control}|\p{Variation_Selector})\p{Default_Ignorable_Code_Point}|\ufeff/gu
/** What can be seen: the pattern of Braille without a point is a symbol, and empty. */
const SEEN = /(?!\u2800)[\p{L}\p{N}\p{S}\p{P}]/u

/** Text without characters that change the direction or the order of what stands around it; empty where nothing is seen of it. */
export function shown(text: string): string {
  const rest = text.replace(UNSEEN, "").trim()
  return SEEN.test(rest) ? rest : ""
}
