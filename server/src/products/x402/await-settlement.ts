/** Waits for a settlement while a request is open. */
import type { FastifyReply } from "fastify"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { awaitEnd } from "../../platform/http/await-end.ts"
import { waitsOf } from "../../platform/http/open-waits.ts"
import type { Shared } from "../../platform/http/shared-reads.ts"
import type { Holder } from "../../platform/http/waiter-slots.ts"
import { readSettlement, readUnlessPending, type Settlement } from "./read-outcome.ts"

/** How often a settlement is read without a wake-up: while nothing moved, and while its depth or lease may change. */
const PENDING_PAUSE_MS = 5_000
const MOVED_PAUSE_MS = 1_000

/** How long a request waits, and for which holder. */
interface Patience {
  waitS: number
  holder: Holder
}

/**
 * Waits until a settlement is no longer pending by its rows and `isOver` accepts it. It stops after `waitS` seconds, if
 * the caller hangs up, or if another caller needs its slot. Returns the row as last read; throws if none exists.
 */
export async function awaitSettlement(
  ctx: Context,
  reply: FastifyReply,
  { id, payout_id: payoutId }: Pick<Row<"settlements">, "id" | "payout_id">,
  { waitS, holder }: Patience,
  isOver: (row: Settlement) => boolean | Promise<boolean>,
): Promise<Settlement> {
  const shared: Shared<Settlement | undefined> = {
    key: ["settlement", id],
    names: [id, payoutId],
    read: () => readUnlessPending(ctx, id),
    pauseMs: row => (row ? MOVED_PAUSE_MS : PENDING_PAUSE_MS),
    // The depth of a transfer is not in its row.
    isNews: row => row !== undefined,
    // One statement reads all of them.
    isCheap: true,
  }
  const row = await awaitEnd(ctx, reply, shared, {
    waitS,
    places: waitsOf(ctx).agents,
    holder,
    isOver: async row => row !== undefined && (await isOver(row)),
  })
  const last = row ?? (await readSettlement(ctx, id))
  if (!last) throw new Error(`the settlement ${id} is not there`)
  return last
}
