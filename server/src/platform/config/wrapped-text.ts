/** Breaks text into lines, for `--help` and for the doctor's findings. Pure. */

/**
 * The lines of a text, of at most `width` characters, broken at spaces. A word that is longer than a line stays whole,
 * so that addresses and commands can be copied.
 */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ""
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line)
      line = ""
    }
    line = line === "" ? word : `${line} ${word}`
  }
  return [...lines, line]
}
