/** The columns of `figures`, and the SQL that computes them from deltas. */
// I/O: none. It builds parts of statements and runs none.
import { sql } from "kysely"

/** The figures that are amounts of money, by their public names. */
export const moneyFigures = {
  received: "To your receiving addresses, by the time of the block",
  reversed: "Received money that a reorg removed, by the time at which the reorg was noticed",
  returned: "From receiving addresses back to payers",
  refunded: "From your wallet to payers, for escrow payments",
  shares: "To the recipients of splits",
  swept: "To your payout address",
  recovered: "Taken by the owner of a receiving address, without the service",
  unknown: "Left receiving addresses by a transaction that the service did not send",
  reserved: "Into the escrow",
  captured: "Out of the escrow to you",
  released: "Out of the escrow back to payers: voided, or reclaimed after the deadline",
}
export type MoneyFigure = keyof typeof moneyFigures
export const moneyNames = Object.keys(moneyFigures) as MoneyFigure[]

/** The counts, by the figure whose deltas contain them. */
const counts = { transfers: "received", checkouts: "checkouts", paid: "paid", converted: "converted" } as const
export type CountName = keyof typeof counts
const countNames = Object.keys(counts) as CountName[]

const names = [...moneyNames, ...countNames]
/** SQL: the names of the columns. */
export const columns = sql.join(names.map(name => sql.ref(name)))

/** SQL: the columns of one delta. */
export const columnsOfDelta = sql.join([
  ...moneyNames.map(name => sql`case when figure = ${sql.lit(name)} then amount end as ${sql.ref(name)}`),
  ...countNames.map(name => sql`case when figure = ${sql.lit(counts[name])} then count end as ${sql.ref(name)}`),
])

/** SQL: the sum of each column; null if there is nothing to add up. */
export const sumsOfColumns = sql.join(names.map(name => sql`sum(${sql.ref(name)}) as ${sql.ref(name)}`))

/** SQL: the sum of each column, with 0 instead of null, and with counts as numbers. */
export const sumsToRead = sql.join([
  ...moneyNames.map(name => sql`coalesce(sum(${sql.ref(name)}), 0) as ${sql.ref(name)}`),
  ...countNames.map(name => sql`coalesce(sum(${sql.ref(name)}), 0)::int as ${sql.ref(name)}`),
])

/** SQL: how an upsert adds to an existing row. */
export const added = sql.join(
  names.map(name => {
    const before = sql.ref(`figures.${name}`)
    const more = sql.ref(`excluded.${name}`)
    return sql`${sql.ref(name)} = coalesce(${before} + ${more}, ${before}, ${more})`
  }),
)
