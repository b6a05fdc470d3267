/** Long-polls: a request waits until a state has ended. All requests that wait for the same state share its reads. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { addressGroup } from "../limits/buckets.ts"
import { waitsOf } from "./open-waits.ts"
import { type Shared, TICK_MS } from "./shared-reads.ts"
import type { Holder, Slots } from "./waiter-slots.ts"

/** The longest wait that a caller may ask for, in seconds. */
export const MAX_WAIT_S = 25

/** How often a state that someone waits for is read without a wake-up, in milliseconds. */
export const POLL_PAUSE_MS = 5_000
/**
 * More waits per address than the default limits allow. Where a server waits for many payers, the operator has raised
 * those limits.
 */
const MAX_BY_ADDRESS = 100

/** The waiting slot of an API request. */
export const polling = (ctx: Context, { ip }: Pick<FastifyRequest, "ip">) => ({
  places: waitsOf(ctx).polls,
  holder: { name: addressGroup(ip), most: MAX_BY_ADDRESS },
})

/** The conditions and the slot of a waiting request. */
export interface Wait<T> {
  waitS: number
  places: Slots
  holder: Holder
  isOver: (state: T) => boolean | Promise<boolean>
}

/**
 * Returns a state once it `isOver`, or after `waitS` seconds. The wait ends sooner if no slot is free, another request
 * needs the slot, the caller has hung up, or the process stops. The returned state was read after the call or, if the
 * wait ended without a result, after the wait.
 */
export async function awaitEnd<T>(
  ctx: Pick<Context, "wakes" | "signal">,
  { raw }: Pick<FastifyReply, "raw">,
  shared: Shared<T>,
  { waitS, places, holder, isOver }: Wait<T>,
): Promise<T> {
  if (waitS === 0) {
    const state = await shared.read()
    await shared.tend?.(state)
    return state
  }
  const follower = waitsOf(ctx).follow(shared)
  const until = performance.now() + waitS * 1_000
  const giveBack = places.take(holder, follower.end)
  raw.once("close", follower.end)
  try {
    let seen = await follower.fresh()
    if (!giveBack) return seen.state
    while (!(await isOver(seen.state))) {
      // The last read may have to wait for a tick.
      const leftMs = until - performance.now() - TICK_MS
      const next = leftMs > 0 && !raw.destroyed ? await follower.next(seen, leftMs) : undefined
      if (!next) return raw.destroyed ? seen.state : (await follower.fresh()).state
      seen = next
    }
    return seen.state
  } finally {
    raw.off("close", follower.end)
    giveBack?.()
    follower.close()
  }
}
