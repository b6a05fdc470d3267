/**
 * Lists: newest first, with ties ordered by id, and always with the total, as far as it is counted. Each page names the
 * next one. A long page is sent in parts, and is never in memory as a whole
 * (`docs/contributors/decisions/0042-long-lists.md`).
 */
import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { Database } from "../db/schema.ts"
import { invalid } from "../errors.ts"
import { DEFAULT_LIMIT, type Page } from "./schemas.ts"
import { type PartsReply, sendParts } from "./send-parts.ts"

/** A full checkout is about 11 KB, so a part is about 500 KB. The default page of 100 takes two reads. */
const ROWS_PER_READ = 50

/**
 * How many rows beyond a page are counted. Counting 2,500 took up to 0.6 ms more than counting 1,000, and 10,000 up to
 * 2 ms, for a page that takes 4 ms.
 */
const MAX_COUNTED = 1_500

/** The source of a list. */
export interface ListSource<R> {
  /** The prefix of the names of the list's usual statements, which connections keep prepared (`db/pool.ts`). */
  named?: string | undefined
  /** A query of all rows, in any order and without a limit, for counting. */
  all: RawBuilder<unknown>
  /** The names of the fields that order the rows: an id, and a time unless the id alone orders them. */
  key: { at?: string; id: string; isNumber: boolean }
  /** Reads at most `limit` rows after `last`, or of all rows if `last` is undefined, skipping the first `offset`. */
  read(last: R | undefined, limit: number, offset: number): Promise<R[]>
}

interface ListReply extends PartsReply {
  serialize(payload: unknown): string | ArrayBuffer | Buffer
}

/** The order of most lists. */
export const byCreation = { at: "created_at", id: "id" }

/**
 * Orders the rows of a query, newest first by a time and an id. The next rows are found from the last one, so that a
 * row that is added meanwhile shifts no other row. `named` is for a query that is expensive to plan, always has the
 * same text, and lists its columns itself.
 */
export function newestFirst<T extends keyof Database, O>(
  query: SelectQueryBuilder<Database, T, O>,
  { at, id, isNumber = false }: { at: string; id: string; isNumber?: boolean } = byCreation,
  named?: string,
): ListSource<O> {
  const key = { at: fieldOf(at), id: fieldOf(id), isNumber }
  const of = (row: O, field: string) => (row as Record<string, unknown>)[field]
  return {
    key,
    named,
    all: sql`${query.clearSelect().select(sql<number>`1`.as("one"))}`,
    read: async (last, limit, offset) => {
      const after = sql<boolean>`(${sql.ref(at)}, ${sql.ref(id)}) < (${last && of(last, key.at)}, ${last && of(last, key.id)})`
      const rows = last === undefined ? query : query.where(after)
      const ordered = rows.orderBy(sql.ref(at), "desc").orderBy(sql.ref(id), "desc")
      if (named === undefined || limit !== ROWS_PER_READ + 1 || offset !== 0)
        return await ordered.limit(limit).offset(offset).execute()
      // A stored plan does not know its parameters: with a limit of unknown size, the plan would read and sort all
      // rows.
      const name = sql.raw(`/* named: ${named}_${last === undefined ? "newest" : "next"} */`)
      return await ordered.limit(sql.lit(limit)).modifyFront(name).execute()
    },
  }
}

const fieldOf = (column: string): string => column.split(".").at(-1) ?? column

/**
 * Names a page's last row by its time and id, for requests for the next page. Callers need not understand the cursor.
 */
function cursorOf<R>(row: R, { at, id }: ListSource<R>["key"]): string {
  const fields = row as Record<string, unknown>
  const time = at === undefined ? null : (fields[at] as Date).toISOString()
  return Buffer.from(JSON.stringify([time, `${fields[id]}`])).toString("base64url")
}

/**
 * The key of the row that a cursor names. Throws `VALIDATION_ERROR` for a cursor that no page of such a list returned.
 */
function rowOf<R>(cursor: string, { at, id, isNumber }: ListSource<R>["key"]): R {
  const [time, which] = partsOf(Buffer.from(cursor, "base64url").toString())
  const isTime = typeof time === "string" && /^(?!0000)\d{4}-/.test(time) && isoOf(time) === time
  const hasTime = at === undefined ? time === null : isTime
  const hasId = typeof which === "string" && (isNumber ? /^[0-9]{1,18}$/ : /^[A-Za-z0-9_-]{1,100}$/).test(which)
  if (!hasTime || !hasId) throw invalid("after", "must be the `next` of a page of this list")
  const found = { [id]: isNumber ? BigInt(which) : which, ...(at === undefined ? {} : { [at]: new Date(`${time}`) }) }
  return found as R
}

/** A time as `cursorOf` writes it; undefined for anything else. */
function isoOf(time: string): string | undefined {
  const parsed = new Date(time)
  return Number.isNaN(parsed.getTime()) ? undefined : parsed.toISOString()
}

function partsOf(text: string): unknown[] {
  try {
    const parts: unknown = JSON.parse(text)
    return Array.isArray(parts) ? parts : []
  } catch {
    return []
  }
}

/** The usual envelope of a list. */
export const inData = <T>(data: T[], total: number): { data: T[]; total: number } => ({ data, total })

/**
 * Sends one page of a list: each part's rows as `format` returns them, in the envelope that `wrap` creates. The
 * envelope of an empty list must contain one `[]`, which marks the list's place. More than 50 rows are sent in parts
 * that the route's own schema serializes.
 */
export async function sendList<R, T, E extends object>(
  ctx: Pick<TxContext, "db" | "log" | "settings">,
  reply: ListReply,
  page: Page,
  source: ListSource<R>,
  format: (rows: R[]) => T[] | Promise<T[]>,
  wrap: (items: T[], total: number) => E,
): Promise<E> {
  const { limit, offset, after } = page
  const from = after === undefined ? undefined : rowOf<R>(after, source.key)
  /**
   * The next rows of the page, and whether more follow. The function reads one extra row to find out, because the count
   * was taken at another moment.
   */
  const readPart = async (last: R | undefined, sent: number, skipped: number): Promise<Part<R>> => {
    const most = Math.min(limit - sent, ROWS_PER_READ)
    const rows = await source.read(last, most + 1, skipped)
    return { rows: rows.slice(0, most), hasMore: rows.length > most }
  }
  let part = await readPart(from, 0, offset)
  const isWhole = after === undefined && offset === 0 && !part.hasMore
  const counted = isWhole ? { total: part.rows.length, isLeast: false } : await count(ctx, source, page)
  const envelope = (items: T[], end: End) => ({ ...wrap(items, counted.total), ...end })
  const endAfter = ({ rows, hasMore }: Part<R>): End => {
    const last = rows.at(-1)
    const next = hasMore && last !== undefined ? { next: cursorOf(last, source.key) } : {}
    return counted.isLeast ? { totalIsLeast: true, ...next } : next
  }
  if (!part.hasMore || limit <= ROWS_PER_READ) return envelope(await format(part.rows), endAfter(part))

  const outside = (end: End) => `${reply.serialize(envelope([], end))}`.split("[]")
  const [head = "", tail = ""] = outside({})
  const itemsOf = async (part: R[]) =>
    `${reply.serialize(envelope(await format(part), {}))}`.slice(head.length + 1, -tail.length - 1)
  async function* parts(): AsyncGenerator<string> {
    let before = `${head}[`
    let sent = 0
    for (;;) {
      const items = await itemsOf(part.rows)
      if (items !== "") {
        yield before + items
        before = ","
      }
      sent += part.rows.length
      if (sent === limit || !part.hasMore) break
      part = await readPart(part.rows.at(-1), sent, 0)
    }
    yield `${before === "," ? "" : before}]${outside(endAfter(part))[1]}`
  }
  return (await sendParts(ctx, reply, "application/json; charset=utf-8", parts())) as unknown as E
}

interface Part<R> {
  rows: R[]
  hasMore: boolean
}

interface End {
  totalIsLeast?: true
  next?: string
}

/**
 * How many rows there are, and whether there are more than were counted. A program that continues while `offset` is
 * below the total reads all rows.
 */
async function count<R>({ db }: Pick<TxContext, "db">, { all, named }: ListSource<R>, { limit, offset }: Page) {
  const most = offset + limit + MAX_COUNTED
  const isUsual = named !== undefined && offset === 0 && limit === DEFAULT_LIMIT
  const [name, atMost] = isUsual ? [sql.raw(`/* named: ${named}_counted */`), sql.lit(most + 1)] : [sql``, most + 1]
  const { rows } = await sql<{ total: number }>`
    select ${name} count(*)::int as total from (${all} limit ${atMost}) counted`.execute(db)
  const total = rows[0]?.total ?? 0
  return { total: Math.min(total, most), isLeast: total > most }
}
