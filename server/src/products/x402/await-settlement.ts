/** Waits for a settlement while a request is open. */
import type { FastifyReply } from "fastify"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { awaitEnd } from "../../platform/http/await-end.ts"
import { waitsOf } from "../../platform/http/open-waits.ts"
import type { Shared } from "../../platform/http/shared-reads.ts"
import type { Holder } from "../../platform/http/waiter-slots.ts"
import { readSettlement, readUnlessPending, type Settlement } from "./read-outcome.ts"

/**
 * How often a settlement is read without a wake-up: first while nothing has moved, then while its depth or lease may
 * change.
 */
const PENDING_PAUSE_MS = 5_000
const MOVED_PAUSE_MS = 1_000

/** How long a request waits, and for which holder it takes a slot. */
interface Patience {
  waitS: number
  holder: Holder
}

/**
 * Waits until a settlement's rows no longer say pending and `isOver` accepts the settlement. The wait ends early after
 * `waitS` seconds, if the caller hangs up, or if another caller needs the slot. Returns the row as it was last read;
 * throws if there is none.
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
    // The row does not contain the depth of a transfer, so any row may be news.
    isNews: row => row !== undefined,
    // One statement reads the settlements of all waiting requests.
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
