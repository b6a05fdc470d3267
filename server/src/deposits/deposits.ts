/** Creates receiving addresses: known before anything is deployed there, and each for one thing that is sold. */
import { randomBytes } from "node:crypto"
import type { Address, Hash } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositAddress, depositImplementation } from "./address.ts"

/** What a receiving address is for. */
type Resource = { paywallId: string } | { sessionId: string; endsAt: Date }

/**
 * After this time anyone may send the remaining money of a paywall's address to its owner; before then the paywall gets
 * a new address.
 */
const PAYWALL_OPEN_AFTER_S = 365 * 86_400

/** The same, counted from a session's end; late payments are still found within it. */
const SESSION_OPEN_AFTER_S = 30 * 86_400
/** The page of a new session is open, so its address is watched for this long from the start. */
const SESSION_HOT_MS = 3_600_000

/** Creates a receiving address for a paywall or a session; its money belongs to `owner`. */
export async function makeDeposit(
  ctx: TxContext,
  network: NetworkInfo,
  { owner, ...resource }: Resource & { owner: Address },
): Promise<Row<"deposits">> {
  const isSession = "sessionId" in resource
  const [from, seconds] = isSession ? [resource.endsAt, SESSION_OPEN_AFTER_S] : [ctx.now(), PAYWALL_OPEN_AFTER_S]
  const salt = `0x${randomBytes(32).toString("hex")}` as Hash
  const openAfter = BigInt(Math.floor(from.getTime() / 1_000) + seconds)
  const factory = network.depositFactory
  return await ctx.db
    .insertInto("deposits")
    .values({
      chain_id: network.chainId,
      address: depositAddress({ factory, implementation: depositImplementation(factory), salt, owner, openAfter }),
      factory,
      salt,
      owner,
      open_after_s: openAfter,
      ...(isSession ? { session_id: resource.sessionId } : { paywall_id: resource.paywallId }),
      created_at: ctx.now(),
      hot_until: new Date(ctx.now().getTime() + (isSession ? SESSION_HOT_MS : 0)),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}

/** Somebody who views what is sold at an address may be about to pay, so the address is watched for this long. */
const WATCH_MS = 3_600_000

/**
 * Keeps the addresses of a paywall or session watched, or starts to watch them again. Writes only when half of the time
 * has passed.
 */
export async function watch(ctx: Context, resource: string): Promise<void> {
  const now = ctx.now().getTime()
  await ctx.db
    .updateTable("deposits")
    .set({ hot: true, hot_until: new Date(now + WATCH_MS) })
    .where(eb => eb.or([eb("paywall_id", "=", resource), eb("session_id", "=", resource)]))
    .where(eb => eb.or([eb("hot", "=", false), eb("hot_until", "<", new Date(now + WATCH_MS / 2))]))
    .execute()
}
