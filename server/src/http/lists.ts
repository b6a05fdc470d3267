/**
 * Lists: newest first, ties by id, always with the total. A long one is sent in parts, and is never in memory as a
 * whole.
 */
import { type SelectQueryBuilder, sql } from "kysely"
import type { Context } from "../context.ts"
import type { Database } from "../db/schema.ts"
import { type PartsReply, sendParts } from "./parts.ts"
import type { Page } from "./schemas.ts"

/** A full checkout is some 11 KB, so that a part is about 500 KB; the default page of 100 is two reads. */
const ROWS_A_READ = 50

/** The source of a list. */
export interface ListSource<R> {
  /** The number of rows. */
  total(): Promise<number>
  /** At most `limit` rows: those after `last`, or without it those after the first `offset`. */
  read(last: R | undefined, limit: number, offset: number): Promise<R[]>
}

interface ListReply extends PartsReply {
  serialize(payload: unknown): string | ArrayBuffer | Buffer
}

/**
 * Orders the rows of a query, newest first by a time and an id. The next rows are found from the last one, so that a
 * row added meanwhile shifts none.
 */
export function newestFirst<T extends keyof Database, O>(
  query: SelectQueryBuilder<Database, T, O>,
  { at, id }: { at: string; id: string } = { at: "created_at", id: "id" },
): ListSource<O> {
  const fieldOf = (row: O, column: string) => (row as Record<string, unknown>)[column.split(".").at(-1) ?? ""]
  return {
    total: async () => {
      const counted = query.clearSelect().select(sql<number>`count(*)::int`.as("total"))
      return ((await counted.executeTakeFirstOrThrow()) as { total: number }).total
    },
    read: async (last, limit, offset) => {
      const ordered = query.orderBy(sql.ref(at), "desc").orderBy(sql.ref(id), "desc").limit(limit)
      if (last === undefined) return await ordered.offset(offset).execute()
      const after = sql`(${fieldOf(last, at)}, ${fieldOf(last, id)})`
      return await ordered.where(sql<boolean>`(${sql.ref(at)}, ${sql.ref(id)}) < ${after}`).execute()
    },
  }
}

/** The usual envelope of a list. */
export const inData = <T>(data: T[], total: number): { data: T[]; total: number } => ({ data, total })

/**
 * One page of a list: each part's rows as `format` makes them, in the envelope that `wrap` creates. The envelope of an
 * empty list must contain one `[]`, the list's place. More than 50 rows are sent in parts that the route's own schema
 * serializes.
 */
export async function sendList<R, T, E>(
  ctx: Pick<Context, "log" | "settings">,
  reply: ListReply,
  { limit, offset }: Page,
  source: ListSource<R>,
  format: (rows: R[]) => T[] | Promise<T[]>,
  wrap: (items: T[], total: number) => E,
): Promise<E> {
  const total = await source.total()
  const rows = await source.read(undefined, Math.min(limit, ROWS_A_READ), offset)
  if (rows.length < ROWS_A_READ || limit === ROWS_A_READ) return wrap(await format(rows), total)

  const [head = "", tail = ""] = `${reply.serialize(wrap([], total))}`.split("[]")
  const itemsOf = async (part: R[]) =>
    `${reply.serialize(wrap(await format(part), total))}`.slice(head.length + 1, -tail.length - 1)
  async function* parts(): AsyncGenerator<string> {
    let before = `${head}[`
    let left = limit
    for (let part = rows; ; ) {
      const items = await itemsOf(part)
      if (items !== "") {
        yield before + items
        before = ","
      }
      left -= part.length
      if (left === 0 || part.length < ROWS_A_READ) break
      part = await source.read(part.at(-1), Math.min(left, ROWS_A_READ), 0)
    }
    yield `${before === "," ? "" : before}]${tail}`
  }
  return (await sendParts(ctx, reply, "application/json; charset=utf-8", parts())) as E
}
