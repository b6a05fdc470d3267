/**
 * Files of many rows: the database writes the lines, in parts of some thousand rows, and addresses get their checksums here. A
 * million rows as objects of this process were most of the time that such a file took.
 */
import { setImmediate as turn } from "node:timers/promises"
import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely"
import { ADDRESS_LENGTH, checksumAt } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"

/** Some 800 KB of text, in a statement of 15 ms; planning the longest takes 3. */
const ROWS_A_READ = 2_500

/** Text in SQL, or null for an empty cell. Nothing is quoted: only ids, hashes, amounts, times and names of ours. */
type Cell = RawBuilder<unknown>

/** The last row of a part, as text, so that microseconds are kept. */
interface Last {
  at: string
  id: string
}

/** Where the lines of a file come from. */
interface Lines<C extends string> {
  /** Each column in SQL over a row `r`. */
  cells: Record<C, Cell>
  /**
   * The rows with `at` and `id`, of which no two are alike, and by which they are read, newest first: at most `limit` of those
   * after `last`.
   */
  rows(last: Last | undefined, limit: number): RawBuilder<unknown>
}

interface Part {
  count: number
  known: number
  lines: string | null
  at: string
  id: string
}

/**
 * A line of names, then one line for each row. The next part is read while the one before is sent, and no connection is held
 * between parts. Throws where a row is of a network that this service does not have.
 */
export async function* linesOf<C extends string>(
  ctx: TxContext,
  { cells, rows }: Lines<C>,
): AsyncGenerator<string | Buffer> {
  const columns = Object.keys(cells) as C[]
  yield `${columns.join(",")}\r\n`
  const line = sql.join(columns.map(column => sql`coalesce(${cells[column]}, '')`))
  const read = async (last: Last | undefined): Promise<Part> => {
    const { rows: parts } = await sql<Part>`
      select count(*)::int as count, count(chain)::int as known, string_agg(line, '') as lines,
        (array_agg(at))[count(*)] as at, (array_agg(id))[count(*)] as id
      from (select r.at::text as at, r.id::text as id, ${byNetwork(ctx, ({ name }) => name)} as chain,
          concat_ws(',', ${line}) || ${"\r\n"}::text as line
        from ${rows(last, ROWS_A_READ)} r order by r.at desc, r.id desc) l`.execute(ctx.db)
    const [part] = parts
    if (!part || part.known < part.count)
      throw new Error("The database has rows of a network that NETWORKS does not name")
    return part
  }
  let next: Promise<Part> | undefined = read(undefined)
  while (next) {
    const part: Part = await next
    next = part.count === ROWS_A_READ ? read(part) : undefined
    // Whoever leaves does not wait for it.
    next?.catch(() => {})
    // Its statement is sent before this part is worked on, so that both sides work at once.
    await turn()
    if (part.lines !== null) yield withChecksums(part.lines)
  }
}

const HASH_LENGTH = 66
const isLowerHex = (code: number): boolean => (code >= 48 && code <= 57) || (code >= 97 && code <= 102)

/**
 * The bytes of ASCII text, with the checksum of each lower-case address; hashes stay as they are. It is written into the bytes, as
 * millions of pieces of text are slow to collect.
 */
function withChecksums(text: string): Buffer {
  const bytes = Buffer.from(text, "latin1")
  for (let at = text.indexOf("0x"); at >= 0; at = text.indexOf("0x", at)) {
    let end = at + 2
    while (isLowerHex(text.charCodeAt(end)) && end - at < HASH_LENGTH) end++
    if (end - at === ADDRESS_LENGTH) checksumAt(bytes, at)
    at = end
  }
  return bytes
}

/** What is said of the network of a row, in SQL. */
export const byNetwork = (ctx: TxContext, of: (network: NetworkInfo) => string, row = "r"): Cell =>
  sql`case ${sql.ref(`${row}.chain_id`)} ${sql.join(
    ctx.chain.networks.map(network => sql`when ${network.chainId} then ${of(network)}::text`),
    sql` `,
  )} end`

/** What one base unit is in whole tokens, as text for the database: "0.000001" of six decimals. */
export const unitOf = (decimals: number): string => `1e-${decimals}`

/** Base units as `formatAmount` shows them, by what one is in whole tokens, `r.unit`; where that is null, as they are. */
export const amountCell = (amount: Cell): Cell =>
  sql`case when r.unit is null then ${amount}::text else
    round(${amount} * r.unit, greatest(2, scale(trim_scale(${amount} * r.unit))))::text end`

/** A time as `toISOString` shows it. */
export const timeCell = (at: Cell): Cell => sql`to_char(${at} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** An id where it is of this kind. */
export const kindCell = (prefix: string, id: Cell): Cell =>
  sql`case when starts_with(${id}, ${`${prefix}_`}) then ${id} end`

/** The query of one sorted list, continued after a row of it. */
export function continued<T>(
  query: SelectQueryBuilder<never, never, T>,
  { at, id }: { at: string; id: string },
  last: Last | undefined,
  limit: number,
): RawBuilder<unknown> {
  const after = last
    ? query.where(sql<boolean>`(${sql.ref(at)}, ${sql.ref(id)}) < (${last.at}::timestamptz, ${last.id})`)
    : query
  return sql`(${after.orderBy(sql.ref(at), "desc").orderBy(sql.ref(id), "desc").limit(limit)})`
}
