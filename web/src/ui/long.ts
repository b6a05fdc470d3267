/**
 * Whether a merchant's text is so long that a page shows only its start. Pure: the server and the browser both use it.
 */

const MAX_LINES = 3
/** Letters in a line of the widest card. A narrow card shows such a text in a few more lines. */
const LINE = 48
/** Chinese, Japanese and Korean letters, which are twice as wide. */
const WIDE = /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]/g

/** Whether the text takes more than three lines, which would move the amount and the button out of sight. */
export function isLong(text: string): boolean {
  const lines = text
    .split("\n")
    .map(line => Math.max(1, Math.ceil((line.length + (line.match(WIDE)?.length ?? 0)) / LINE)))
  return lines.reduce((sum, count) => sum + count, 0) > MAX_LINES
}
