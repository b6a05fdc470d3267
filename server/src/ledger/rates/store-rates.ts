/**
 * Stores rates without changing any value that someone may have read: if a rate is known for a time, no other rate is
 * added.
 */
import { sql } from "kysely"
import type { Db } from "../../platform/db/open.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { EcbDay } from "./ecb.ts"

/** The longest time without new rates is Easter, from Thursday to Tuesday. */
const VALID = sql`interval '5 days'`
/**
 * The ECB publishes at about 16:00 in Frankfurt. An hour later the file is certainly available, so every reader then
 * uses it to value the later payments of that day.
 */
const PUBLISHED = sql`time '17:00'`

/**
 * Stores the rates of these days and returns how many were new. `newest` says whether the days are everything published
 * up to `now`, as in the files from the ECB's own address. A file from the operator counts as complete until one day
 * after its last day.
 */
export async function storeEcb(
  db: Db,
  days: readonly EcbDay[],
  { now, newest }: { now: Date; newest: boolean },
): Promise<number> {
  const rates = days.flatMap(({ date, perEuro }) =>
    Object.entries({ ...perEuro, EUR: "1" }).map(([unit, rate]) => ({ date, unit, rate, dollar: perEuro.USD ?? "" })),
  )
  const column = (of: (rate: (typeof rates)[number]) => string) => sqlArray("text", rates.map(of))
  return await db.transaction().execute(async db => {
    await lockSource(db, "ecb")
    const { rows } = await sql<{ n: number }>`
      with given as (
        select unit, round(dollar::numeric / rate::numeric, 12) as usd,
          (date::date + ${PUBLISHED}) at time zone 'Europe/Berlin' as published_at
        from unnest(${column(each => each.date)}, ${column(each => each.unit)}, ${column(each => each.rate)}, ${column(each => each.dollar)})
          as g (date, unit, rate, dollar)
      ), added as (
        insert into rates (unit, published_at, usd, source, valid_until)
        select unit, published_at, usd, 'ecb', published_at + ${VALID} from given g
        where unit <> 'USD' and (published_at > (select max(complete_until) from rate_sources) or not exists (
          select from rates r where r.unit = g.unit and r.published_at <= g.published_at
            and (r.valid_until is null or r.valid_until >= g.published_at)))
        on conflict do nothing returning 1
      ), ended as (
        update rate_sources set complete_until = greatest(complete_until, least(${now}::timestamptz, ${
          newest ? sql`${now}::timestamptz` : sql`(select max(published_at) + interval '1 day' from given)`
        })) where source = 'ecb'
      ) select count(*)::int as n from added`.execute(db)
    return rows[0]?.n ?? 0
  })
}

/** Stores the operator's own rates, in US dollars for each unit. The rates apply from now until they are changed. */
export async function storeFixed(db: Db, rates: Readonly<Record<string, string>>, now: Date): Promise<void> {
  await db.transaction().execute(async db => {
    await lockSource(db, "fixed")
    for (const [unit, usd] of Object.entries(rates))
      await sql`
        insert into rates (unit, published_at, usd, source)
        select ${unit}, ${now}::timestamptz, ${usd}::numeric, 'fixed' where ${usd}::numeric is distinct from (
          select case when source = 'fixed' then usd end from rates where unit = ${unit} order by published_at desc limit 1)
        on conflict do nothing`.execute(db)
    await sql`update rate_sources set complete_until = greatest(complete_until, ${now}::timestamptz) where source = 'fixed'`.execute(
      db,
    )
  })
}

/**
 * Creates the source's row if it does not exist, and locks it, because two processes that store rates must not
 * interleave.
 */
async function lockSource(db: Db, source: "ecb" | "fixed"): Promise<void> {
  await sql`insert into rate_sources (source, complete_until, next_at) values (${source}, '1999-01-01', now())
    on conflict do nothing`.execute(db)
  await sql`select 1 from rate_sources order by source for no key update`.execute(db)
}
