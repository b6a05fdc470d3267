/** Reads the table of payout kinds, for code and for SQL. */
import { type RawBuilder, sql } from "kysely"
import { type PayoutKind, type PayoutKindName, payoutKinds } from "./payout-kinds.ts"

/** The row of a kind. */
export const kindOf = ({ kind }: { kind: PayoutKindName }): PayoutKind => payoutKinds[kind]

const rows = (): [string, PayoutKind][] => Object.entries(payoutKinds)

/**
 * SQL: the kinds that meet a condition, as a list after `kind in`. The kinds are literals in the order of the table,
 * because partial indexes have the same lists. The list is one piece of text, because Kysely takes a microsecond for
 * each part.
 */
export const kindsThat = (is: (kind: PayoutKind) => boolean | undefined): RawBuilder<unknown> =>
  sql.raw(
    `(${rows()
      .flatMap(([name, kind]) => (is(kind) ? [`'${name}'`] : []))
      .join(", ")})`,
  )

/** SQL: a number by the kind of a row `i`; null for a kind without a number. */
export function numberByKind(numberOf: (kind: PayoutKind) => bigint | undefined): RawBuilder<bigint> {
  const cases = rows().flatMap(([name, kind]) => {
    const number = numberOf(kind)
    return number === undefined ? [] : [`when '${name}' then ${number}`]
  })
  return sql.raw(`(case i.kind ${cases.join(" ")} end)`)
}
