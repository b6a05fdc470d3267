/**
 * Writes files of many rows. The database writes the lines, in parts of a few thousand rows, and this process adds
 * checksums to addresses. Building a million rows as objects in this process took most of the time of such a file.
 */
import { setImmediate as turn } from "node:timers/promises"
import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely"
import { ADDRESS_LENGTH, checksumAt } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/network-facts.ts"
import type { TxContext } from "../context.ts"

/**
 * About 1 MB of text in a statement of 5 to 20 ms; planning the longest statement takes 3 ms. With 4,000 rows files
 * took an eighth less time. But with `--max-semi-space-size=4` files took 218 MB instead of 148: texts of the previous
 * part survived (300,000 rows, measured).
 */
const ROWS_PER_READ = 2_000
/**
 * How many lines one text has, about 50 KB; a statement returns many texts. `pg` receives a longer message into buffers
 * that double again and again, and V8 keeps longer texts until it collects the whole heap. With one text per statement,
 * a file took twice the CPU.
 */
const LINES_PER_TEXT = 100

/**
 * SQL that returns text, or null for an empty cell. The text is not quoted here: text from outside goes through
 * {@link quotedCell}.
 */
type Cell = RawBuilder<unknown>

/** The last row of a part, as text, so that microseconds are kept. */
export type Last<K extends string = "at" | "id"> = Record<K, string>

/** The source of a file's lines. */
interface Lines<C extends string, K extends string> {
  /** Each column in SQL over a row `r`. */
  cells: Record<C, Cell>
  /** The columns of `r` that order the rows, descending. No two rows have the same values in all of them. */
  key: readonly K[]
  /** SQL: at most `limit` of the rows after `last`, with the columns of the key. */
  rows(last: Last<K> | undefined, limit: number): RawBuilder<unknown>
  /** Whether to include rows of a network that this service does not serve, instead of throwing. */
  ofAnyNetwork?: true
  /** Completes the text of some lines; by default, each lower-case address in the text gets its checksum. */
  finish?: (text: string) => string | Buffer
}

interface Part {
  /** How many rows the whole read returns. */
  count: number
  known: boolean | null
  /** How many lines of the read come before these. */
  before: number
  /** Null if the read returns no rows. */
  lines: string | null
}

/**
 * Yields a line of names, then one line for each row. The next part is read while the previous one is sent, and no
 * connection is held between parts. Throws if a row belongs to a network that this service does not serve, unless
 * `ofAnyNetwork` is set.
 */
export async function* linesOf<C extends string, K extends string>(
  { db, chain }: Pick<TxContext, "db" | "chain">,
  { cells, key, rows, ofAnyNetwork, finish = withChecksums }: Lines<C, K>,
): AsyncGenerator<string | Buffer> {
  const columns = Object.keys(cells) as C[]
  yield `${columns.join(",")}\r\n`
  const line = sql.join(columns.map(column => sql`coalesce(${cells[column]}, '')`))
  const of = (column: string) => sql.ref(`r.${column}`)
  const order = sql.join(key.map(column => sql`${of(column)} desc`))
  const lasts = sql.join(key.map(column => sql`(array_agg(${sql.ref(column)}))[count(*)]::text as ${sql.ref(column)}`))
  const isKnown = ofAnyNetwork
    ? sql`true`
    : sql`r.chain_id in (${sql.join(chain.networks.map(({ chainId }) => chainId))})`
  const read = async (last: Last<K> | undefined) => {
    const { rows: parts } = await sql<Part & Last<K>>`
      select count, known, before, array_to_string(lines[before + 1 : before + ${LINES_PER_TEXT}], '') as lines,
        ${sql.join(key.map(column => sql.ref(column)))}
      from (
        select count(*)::int as count, bool_and(known) as known, array_agg(line) as lines, ${lasts}
        from (select ${sql.join(key.map(of))}, ${isKnown} as known, concat_ws(',', ${line}) || ${"\r\n"}::text as line
          from ${rows(last, ROWS_PER_READ)} r order by ${order}) l
      ) whole, generate_series(0, greatest(count - 1, 0), ${LINES_PER_TEXT}) before`.execute(db)
    const [part] = parts
    if (!part || part.known === false) throw new Error("The database has rows of a network that NETWORKS does not name")
    const texts = parts.toSorted((a, b) => a.before - b.before).flatMap(({ lines }) => lines ?? [])
    return { texts, next: part.count === ROWS_PER_READ ? part : undefined }
  }
  let reading: ReturnType<typeof read> | undefined = read(undefined)
  while (reading) {
    const { texts, next } = (await reading) as Awaited<ReturnType<typeof read>>
    reading = next && read(next)
    // A reader that stops early does not wait for this read.
    reading?.catch(() => {})
    // The next part's statement is sent before this part is processed, so that both sides work in parallel.
    await turn()
    for (const text of texts) yield finish(text)
  }
}

const HASH_LENGTH = 66
const [ZERO, X] = [..."0x"].map(char => char.charCodeAt(0))
const IS_LOWER_HEX = Uint8Array.from({ length: 256 }, (_, code) =>
  "0123456789abcdef".includes(String.fromCharCode(code)) ? 1 : 0,
)
/** The bit that distinguishes lower-case letters from capitals; digits have it. */
const LOWER = 32

/**
 * Returns the bytes of ASCII text, with the checksum of each lower-case address; hashes stay unchanged. The function
 * works on the bytes. With pieces of text and a map of them, a line of seven addresses and hashes took 3.7 µs instead
 * of 2.2.
 */
function withChecksums(text: string): Buffer {
  const bytes = Buffer.from(text, "latin1")
  const seen = new Int32Array(16 ** 3).fill(-1)
  const { length } = bytes
  for (let x = 1; x < length; x++) {
    if (bytes[x] !== X || bytes[x - 1] !== ZERO) continue
    const at = x - 1
    const most = at + HASH_LENGTH < length ? at + HASH_LENGTH : length
    let end = at + 2
    while (end < most && IS_LOWER_HEX[bytes[end] as number]) end++
    if (end - at === ADDRESS_LENGTH) checksumOnce(bytes, at, seen)
    x = end
  }
  return bytes
}

/**
 * Writes the checksum at `at`. An address that recurs, such as a factory's, is copied from an earlier place that has
 * its checksum. `seen` has the last such place for each combination of the first three digits.
 */
function checksumOnce(bytes: Buffer, at: number, seen: Int32Array): void {
  const digit = (i: number) => (bytes[at + 2 + i] ?? 0) & 15
  const slot = (digit(0) * 16 + digit(1)) * 16 + digit(2)
  const before = seen[slot] ?? -1
  if (before >= 0 && isSameAddress(bytes, before, at)) {
    for (let i = 2; i < ADDRESS_LENGTH; i++) bytes[at + i] = bytes[before + i] ?? 0
    return
  }
  checksumAt(bytes, at)
  seen[slot] = at
}

/** Whether the lower-case address at `at` is the one whose checksum is at `before`. */
function isSameAddress(bytes: Buffer, before: number, at: number): boolean {
  for (let i = 2; i < ADDRESS_LENGTH; i++) if (((bytes[before + i] ?? 0) | LOWER) !== bytes[at + i]) return false
  return true
}

/** SQL: a text about the network of a row. */
export const byNetwork = ({ chain }: Pick<TxContext, "chain">, of: (network: NetworkInfo) => string, row = "r"): Cell =>
  sql`case ${sql.ref(`${row}.chain_id`)} ${sql.join(
    chain.networks.map(network => sql`when ${network.chainId} then ${of(network)}::text`),
    sql` `,
  )} end`

/** SQL: a text about a row's token if the token is the settlement token of its network; otherwise null. */
export const ifSettlement = (ctx: Pick<TxContext, "chain">, of: (network: NetworkInfo) => string, row = "r"): Cell =>
  sql`case when ${sql.ref(`${row}.token`)} = ${byNetwork(ctx, network => network.token.address, row)} then ${byNetwork(ctx, of, row)} end`

/** Returns one base unit in whole tokens, as text for the database: "1e-6" for six decimals. */
export const unitOf = (decimals: number): string => `1e-${decimals}`

/**
 * SQL: base units in the form of `formatAmount`. `r.unit` is one base unit in whole tokens; if it is null, base units
 * are shown.
 */
export const amountCell = (amount: Cell): Cell =>
  sql`case when r.unit is null then ${amount}::text else
    round(${amount} * r.unit, greatest(2, scale(trim_scale(${amount} * r.unit))))::text end`

/** SQL: a time in the form of `toISOString`. */
export const timeCell = (at: Cell): Cell => sql`to_char(${at} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/**
 * SQL: text from outside, as `quoted` of `http/send-csv.ts` writes it: in quotes, and with an apostrophe before it if a
 * spreadsheet would take it for a formula.
 */
export const quotedCell = (text: Cell): Cell =>
  sql`'"' || case when left(${text}, 1) in ('=', '+', '-', '@', ${"\t"}, ${"\r"}, ${"\n"}) then ${"'"} else '' end
    || replace(${text}, '"', '""') || '"'`

/** SQL: the id of a payout, from its UUID. */
export const payoutIdCell = (uuid: Cell): Cell => sql`'po_' || replace(${uuid}::text, '-', '')`

/** SQL: an id if it belongs to this kind, otherwise null. */
export const kindCell = (prefix: string, id: Cell): Cell =>
  sql`case when starts_with(${id}, ${`${prefix}_`}) then ${id} end`

/** SQL: one part of a sorted list, starting after a given row. */
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
