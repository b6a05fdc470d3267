/** Finds relays that would sell something while their network's sales are paused. */
import { sql } from "kysely"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { pausedDeposits } from "../payouts/check-paused.ts"

/**
 * Returns the ids of relays that would sell something while a network's sales are paused. Such a relay pays to an
 * address of a paused factory, or reserves money in the escrow.
 */
export async function pausedRelays(
  ctx: Context,
  network: Network,
  rows: readonly Pick<Row<"payouts">, "id" | "deposit_id" | "kind">[],
): Promise<Set<string>> {
  const ids = rows.flatMap(row => row.deposit_id ?? [])
  if (ids.length === 0 && rows.every(row => !kindOf(row).isReservation)) return new Set()
  const isPausedAt = await pausedDeposits(ctx)
  const isReservingPaused = isPausedAt(network, { factory: network.depositFactory, older_factory: false })
  const deposits = await ctx.db
    .selectFrom("deposits")
    .select(["id", "factory", "older_factory"])
    .where(sql<boolean>`id = any(${sqlArray("bigint", ids)})`)
    .execute()
  const paused = new Set(deposits.filter(each => isPausedAt(network, each)).map(({ id }) => id))
  const isPausedFor = (row: (typeof rows)[number]) =>
    row.deposit_id === null ? kindOf(row).isReservation === true && isReservingPaused : paused.has(row.deposit_id)
  return new Set(rows.filter(isPausedFor).map(({ id }) => id))
}
