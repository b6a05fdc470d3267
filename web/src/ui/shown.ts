/** Makes text from other people safe to show in a page. Pure: the server and the browser both use it. */

/**
 * Control characters except tab and newline, and invisible characters except joiners and variants: marks and overrides
 * of direction, tags, fillers.
 */
const UNSEEN = /(?![\t\n])\p{Cc}|(?!\p{Join_Control}|\p{Variation_Selector})\p{Default_Ignorable_Code_Point}|\ufeff/gu
/** Visible characters. The Braille pattern without a dot is a symbol, but empty. */
const SEEN = /(?!\u2800)[\p{L}\p{N}\p{S}\p{P}]/u

/**
 * Removes the characters that change the direction or order of the text around them. Empty if nothing visible is left.
 */
export function shown(text: string): string {
  const rest = text.replace(UNSEEN, "").trim()
  return SEEN.test(rest) ? rest : ""
}
