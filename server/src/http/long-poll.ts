/** Long-polls: a waiting caller is woken when any payment changes, and its state is read again. */
import type { FastifyReply } from "fastify"
import type { Context } from "../context.ts"
import { goneSignal } from "./gone.ts"

/** The longest wait that a caller may ask for, in seconds. */
export const MAX_WAIT_S = 25

/**
 * Reads until `isOver`, for at most `waitS` seconds, or until the caller has hung up or the process stops. It reads at
 * each wake-up, and also every `everyMs` where it waits for more than payments.
 */
export async function awaitEnd<T>(
  ctx: Context,
  reply: Pick<FastifyReply, "raw">,
  waitS: number,
  read: () => Promise<T>,
  isOver: (state: T) => boolean,
  everyMs = Number.POSITIVE_INFINITY,
): Promise<T> {
  const signal = AbortSignal.any([ctx.signal, goneSignal(reply.raw)])
  const wakes = ctx.wakes.subscribe("payments")
  const until = performance.now() + waitS * 1_000
  try {
    for (;;) {
      const state = await read()
      const leftMs = until - performance.now()
      if (isOver(state) || leftMs <= 0 || signal.aborted) return state
      await wakes.next(Math.min(leftMs, everyMs), signal)
    }
  } finally {
    wakes.close()
  }
}
