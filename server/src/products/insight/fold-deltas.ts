/** Folds the deltas that transactions inserted into the rows of `figures`. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { added, columns, columnsOfDelta, sumsOfColumns } from "./figure-columns.ts"

/** How many deltas one statement folds at most. */
const BATCH = 5_000

/**
 * Folds all committed deltas. One statement deletes deltas and adds them to the figures, so each counts once, no
 * matter when a process is killed. Two workers take different deltas, and write the figures in the same order.
 */
export async function foldDeltas(ctx: TxContext): Promise<void> {
  while ((await foldSome(ctx)) === BATCH);
}

async function foldSome(ctx: TxContext): Promise<number> {
  const { rows } = await sql<{ taken: number }>`/* named: fold_figures */ with taken as (
      delete from figure_deltas d where d.ctid = any(array(select t.ctid from figure_deltas t
          order by t.merchant_id, t.at, t.n limit ${BATCH} for no key update skip locked)) returning d.*),
    folded as (insert into figures (merchant_id, seconds, at, chain_id, token, ${columns})
      select merchant_id, seconds, figure_start(at, seconds), chain_id, token, ${sumsOfColumns}
        from (select merchant_id, at, chain_id, token, ${columnsOfDelta} from taken) d, unnest(array[0, 900, 3600, 21600, 86400]) seconds
        group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
      on conflict (merchant_id, seconds, at, chain_id, token) do update set ${added})
    select count(*)::int as taken from taken`.execute(ctx.db)
  return rows[0]?.taken ?? 0
}
