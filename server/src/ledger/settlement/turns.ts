/**
 * Whose turn it is in a round. Strangers decide how much is due, so merchants take turns, each with a limited number, and the
 * work of one merchant that strangers filled keeps nobody else's payment waiting.
 */
// I/O: it makes SQL, which its callers run in their context.
import { type RawBuilder, sql } from "kysely"

/** Groups of one kind in one round; the others stay due for the next, which follows at once. */
const GROUPS_PER_ROUND = 300
/** Those of one merchant, so that many merchants have a turn in each round. */
const MAX_OF_MERCHANT = 200

/**
 * How many due transfers a round reads, of the oldest and of the newest: a flood fills a block or a few, and what others
 * paid meanwhile is among the newest. Those that became due with the last of the oldest are read with it.
 */
const MAX_READ = 50_000

/** SQL: the due transfers of a network that a round reads. */
export const dueTransfers = (chainId: number, now: Date): RawBuilder<unknown> => {
  const due = sql`from transfers where chain_id = ${chainId} and run_at <= ${now}`
  const last = sql`(select run_at ${due} order by run_at offset ${MAX_READ} limit 1)`
  return sql`
    select * ${due} and run_at <= coalesce(${last}, ${now}) union all
    (select * ${due} and run_at > ${last} order by run_at desc limit ${MAX_READ})`
}

/** What {@link inTurn} adds to each row. */
interface Turn {
  /** How many rows are due in all. */
  n: number
}

/** SQL: the ranks of rows by their money and by their age, among those with the same `of`. */
const ranks = (of: "merchant_id" | "turn", names: [string, string], first = ""): RawBuilder<unknown> =>
  sql.raw(`row_number() over (partition by ${of} order by ${first} sum desc nulls last, since, name) as ${names[0]},
    row_number() over (partition by ${of} order by since, name) as ${names[1]}`)

/**
 * SQL: the rows whose turn it is, with how many there are in all. `owed` reads rows of `merchant_id`, `sum` (due base units,
 * or null), `since` (when it became due), `is_first` and `name` (unique). Merchants take turns, and so do one merchant's rows.
 * The next is the row with the most money, which dust never has, then that which has waited longest, which nobody can overtake
 * for ever. Order by {@link turnOf}.
 */
export const inTurn = (owed: RawBuilder<unknown>): RawBuilder<unknown> => sql`
  select * from (
    select *, ${ranks("turn", ["turn_by_money", "turn_by_age"])} from (
      select *, count(*) over ()::int as n, row_number() over (partition by merchant_id order by least(by_money, by_age), by_money) as turn
      from (select *, ${ranks("merchant_id", ["by_money", "by_age"], "is_first desc,")} from (${owed}) owed) placed) turns
    where turn <= ${MAX_OF_MERCHANT}) ranked
  order by ${turnOf} limit ${GROUPS_PER_ROUND}`

/** SQL: the order of the rows of {@link inTurn}. */
export const turnOf = sql`turn, least(turn_by_money, turn_by_age), turn_by_money`

/** Whether rows are due beside those whose turn it is. */
export const isRestDue = (rows: readonly Turn[]): boolean => (rows[0]?.n ?? 0) > rows.length
