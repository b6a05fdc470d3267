/** Waits for a settlement while a request is open. */
import type { FastifyReply } from "fastify"
import type { Context } from "../context.ts"
import { awaitEnd } from "../http/long-poll.ts"
import { readSettlement, readUnlessPending, type Settlement } from "./outcome.ts"

/** How long a request waits. */
interface Patience {
  waitS: number
  /** How often it checks without a wake-up. */
  everyMs?: number | undefined
}

/**
 * Waits until a settlement is no longer pending by its rows and `isOver` accepts it, for at most `waitS` seconds, or
 * until the caller has hung up. Returns the row as last read. Throws where there is none.
 */
export async function awaitSettlement(
  ctx: Context,
  reply: FastifyReply,
  id: string,
  { waitS, everyMs }: Patience,
  isOver: (row: Settlement) => boolean | Promise<boolean>,
): Promise<Settlement> {
  const read = async () => {
    const row = await readUnlessPending(ctx, id)
    return { row, isOver: row !== undefined && (await isOver(row)) }
  }
  const { row } = await awaitEnd(ctx, reply, waitS, read, state => state.isOver, everyMs)
  const last = row ?? (await readSettlement(ctx, id))
  if (!last) throw new Error(`the settlement ${id} is not there`)
  return last
}
