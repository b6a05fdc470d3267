/**
 * Decides whose turn it is in a round. Strangers control how much is due, so merchants take turns, each with a limited
 * number of groups. A flood at one merchant does not delay other merchants' payments.
 */
// I/O: builds SQL, which the callers run in their context.
import { type RawBuilder, sql } from "kysely"

/**
 * The most groups of one kind in one round. The other groups stay due for the next round, which follows immediately.
 */
const GROUPS_PER_ROUND = 300
/** The most groups of one merchant in one round, so that each round has room for many merchants. */
const MAX_OF_MERCHANT = 200

/**
 * How many of the oldest due transfers, and how many of the newest, a round reads. A flood fills a few blocks, and the
 * newest transfers include what others paid meanwhile. Transfers that became due at the same time as the last of the
 * oldest are read too.
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

/** The column that {@link inTurn} adds to each row. */
interface Turn {
  /** How many rows are due in all. */
  n: number
}

/** SQL: the ranks of rows by money and by age, among rows with the same `of`. */
const ranks = (of: "merchant_id" | "turn", names: [string, string], first = ""): RawBuilder<unknown> =>
  sql.raw(`row_number() over (partition by ${of} order by ${first} sum desc nulls last, since, name) as ${names[0]},
    row_number() over (partition by ${of} order by since, name) as ${names[1]}`)

/**
 * SQL: the rows whose turn it is, with the total number of rows. `owed` reads rows with the columns `merchant_id`,
 * `sum` (due base units, or null), `since` (when it became due), `is_first` and `name` (unique). Merchants take turns,
 * and so do one merchant's rows. Turns alternate between the row with the most money, which is never dust, and the row
 * that has waited longest, so that no row waits forever. Order the rows by {@link turnOf}.
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

/** Whether there are more due rows than those whose turn it is. */
export const isRestDue = (rows: readonly Turn[]): boolean => (rows[0]?.n ?? 0) > rows.length
