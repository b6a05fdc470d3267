/** What a command prints: JSON for programs, or a few lines for people. Nothing else writes to the standard output. */
import { styleText } from "node:util"
import { aboveProgress, openProgress, type Progress } from "./progress.ts"

/** Prints the result of a command. */
export interface Output {
  isJson: boolean
  /** Prints one result. With `--json`, it is one line. */
  show(value: unknown): void
  /** Prints a line that is only for people, on the standard error. */
  note(text: string): void
  /** Shows how far a long task has got, on the standard error of a terminal. */
  progress(text: string): Progress
}

const MAX_COLUMNS = 6
const MAX_CELL = 44
/** The columns that come first, if the rows have them. */
const FIRST = ["id", "status", "event", "type", "name", "title", "amount", "currency", "createdAt", "at"]

/**
 * Opens the output. A payer's text may contain characters that move the cursor or rename the window, so none of these
 * characters reaches the terminal. JSON escapes them anyway.
 */
export function openOutput(isJson: boolean): Output {
  const write = (text: string) => aboveProgress(() => process.stdout.write(`${text}\n`))
  return {
    isJson,
    show: value => write(isJson ? JSON.stringify(value) : textOf(value)),
    note: text => void (isJson || aboveProgress(() => process.stderr.write(`${printable(text)}\n`))),
    progress: text => openProgress(text, isJson),
  }
}

/** Replaces the characters that control a terminal; line breaks stay. */
export const printable = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are replaced.
  text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd")

function textOf(value: unknown): string {
  if (typeof value === "string") return printable(value)
  if (typeof value !== "object" || value === null) return String(value)
  const rows = Array.isArray(value) ? value : rowsOf(value)
  if (rows) return rows.length === 0 ? "None." : tableOf(rows as object[])
  const entries = Object.entries(value)
  const width = Math.max(0, ...entries.map(([name]) => name.length))
  return entries.map(([name, each]) => `${dim(name.padEnd(width))}  ${cell(each)}`).join("\n")
}

/** The rows in a page of a list; undefined if the value is not a page. */
const rowsOf = (value: object): unknown[] | undefined =>
  "total" in value ? Object.values(value).find(each => Array.isArray(each)) : undefined

function tableOf(rows: object[]): string {
  const [first = {}] = rows
  const names = Object.keys(first).filter(name => typeof (first as Record<string, unknown>)[name] !== "object")
  const columns = [...FIRST.filter(name => names.includes(name)), ...names.filter(name => !FIRST.includes(name))].slice(
    0,
    MAX_COLUMNS,
  )
  const cells = rows.map(row => columns.map(name => cut(cell((row as Record<string, unknown>)[name]))))
  const widths = columns.map((name, i) => Math.max(name.length, ...cells.map(row => row[i]?.length ?? 0)))
  const line = (parts: string[]) =>
    parts
      .map((part, i) => part.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd()
  return [dim(line(columns)), ...cells.map(line)].join("\n")
}

const cell = (value: unknown): string =>
  value === null || value === undefined
    ? "-"
    : printable(typeof value === "object" ? JSON.stringify(value) : `${value}`)
const cut = (text: string): string =>
  (text.length > MAX_CELL ? `${text.slice(0, MAX_CELL - 1)}…` : text).replaceAll("\n", " ")
/** Dims text. `styleText` considers the stream, NO_COLOR and FORCE_COLOR. */
const dim = (text: string): string => styleText("dim", text, { stream: process.stdout })
