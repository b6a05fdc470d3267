/** Whole lists as CSV (RFC 4180), read and sent in parts, so that a million rows are never in memory. */
import { Type } from "typebox"
import type { Context } from "../context.ts"
import { type PartsReply, sendParts } from "./send-parts.ts"

/**
 * About 400 KB of text. Planning the longest of the statements takes 3 ms, which would be too much for only 250 rows.
 */
const ROWS_PER_READ = 1_000

/** The schema for the answer of a route that sends CSV. */
export const CsvAnswer = { 200: { content: { "text/csv": { schema: Type.String() } } } }

/** The query of a file, in addition to its filters. */
export const csvQuery = {
  bom: Type.Optional(
    Type.Unsafe<"1">({
      type: "string",
      enum: ["1"],
      description: "Starts the file with a byte-order mark; without it, Excel on Windows garbles names",
    }),
  ),
}

type Cells<C extends string> = Record<C, string | number | null>

/**
 * A line of names, then one line for each row as `format` returns it, with empty cells for null. `next` reads at most
 * `limit` rows after the last one. Text is not quoted here: text from outside goes through {@link quoted}.
 */
export async function* csv<R, C extends string>(
  columns: readonly C[],
  format: (rows: R[]) => Cells<C>[] | Promise<Cells<C>[]>,
  next: (last: R | undefined, limit: number) => Promise<R[]>,
): AsyncGenerator<string> {
  yield `${columns.join(",")}\r\n`
  for (let last: R | undefined; ; ) {
    const rows = await next(last, ROWS_PER_READ)
    if (rows.length > 0)
      yield (await format(rows)).map(cells => `${columns.map(column => cells[column] ?? "").join(",")}\r\n`).join("")
    if (rows.length < ROWS_PER_READ) return
    last = rows.at(-1)
  }
}

/**
 * Text from outside as a cell: in quotes, and with an apostrophe before it if a spreadsheet would take it for a
 * formula.
 *
 * @example quoted("=1+1") // "\"'=1+1\""
 */
export const quoted = (text: string | null): string | null =>
  text === null ? null : `"${/^[=+\-@\t\r\n]/.test(text) ? "'" : ""}${text.replaceAll('"', '""')}"`

async function* withMark(parts: AsyncGenerator<string | Buffer>): AsyncGenerator<string | Buffer> {
  // Sent only when there is something to send: an error before the first part gets an answer of its own.
  const first = await parts.next()
  yield "\ufeff"
  if (!first.done) yield first.value
  yield* parts
}

/** Sends CSV as a file of this name; returns it as the text type that the document declares. */
export async function sendCsv(
  ctx: Pick<Context, "log" | "settings">,
  reply: PartsReply & { header(name: string, value: string): unknown },
  name: string,
  parts: AsyncGenerator<string | Buffer>,
  { bom }: { bom?: "1" },
): Promise<string> {
  const sent = await sendParts(ctx, reply, "text/csv; charset=utf-8", bom ? withMark(parts) : parts)
  reply.header("content-disposition", `attachment; filename="${name}"`)
  return sent as unknown as string
}
