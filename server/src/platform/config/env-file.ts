/**
 * Files of settings, with one NAME=VALUE per line. No shell reads them, so `&`, `#`, `$(…)` and spaces in a value are
 * text. Node's own parser is not used: it cuts a value at a `#`, and silently skips lines that it does not understand.
 */
import { smallText } from "./small-text.ts"

const LINE = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/

/**
 * Parses the text of such a file. A line may be empty, or a comment that starts with `#`. Quotes around a whole value
 * are not part of it. If several lines have the same name, the last one counts. Throws an Error with the number of a
 * line in any other form.
 */
export function parseEnvFile(text: string): Record<string, string> {
  const parsed: Record<string, string> = {}
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const trimmed = line.trim()
    if (trimmed === "" || trimmed.startsWith("#")) continue
    const [, name, value] = LINE.exec(trimmed) ?? []
    // The line is not repeated, because it may contain a secret.
    if (name === undefined || value === undefined) throw new Error(`has no NAME=VALUE in line ${index + 1}`)
    parsed[name] = /^(["']).*\1$/.test(value) && value.length > 1 ? value.slice(1, -1) : value
  }
  return parsed
}

/**
 * Adds the variables of a file to the environment of this process. Existing variables keep their values. Throws an
 * Error whose message completes "FILE …".
 */
export function loadEnvFile(path: string, env: Record<string, string | undefined> = process.env): void {
  for (const [name, value] of Object.entries(parseEnvFile(smallText(path)))) env[name] ??= value
}
