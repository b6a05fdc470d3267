/** Creates receiving addresses: known before anything is deployed there, and each for one thing that is sold. */
import { randomBytes } from "node:crypto"
import type { Address, Hash } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositAddress, depositImplementation } from "./address.ts"

/** What a receiving address is for, and its terms. */
export interface DepositTerms {
  /** The id of what is sold there. */
  resourceId: string
  /** Whose its money is. */
  owner: Address
  /** After this time anyone may send its remaining money to the owner. */
  opensAt: Date
  /** How long it is watched from the start. */
  watchedMs: number
}

/** Creates a receiving address. */
export async function makeDeposit(
  ctx: TxContext,
  network: NetworkInfo,
  { resourceId, owner, opensAt, watchedMs }: DepositTerms,
): Promise<Row<"deposits">> {
  const salt = `0x${randomBytes(32).toString("hex")}` as Hash
  const openAfter = BigInt(Math.floor(opensAt.getTime() / 1_000))
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
      resource_id: resourceId,
      created_at: ctx.now(),
      watched_until: new Date(ctx.now().getTime() + watchedMs),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}

/** Somebody who views what is sold at an address may be about to pay, so the address is watched for this long. */
const WATCH_MS = 3_600_000

/**
 * Keeps the addresses of a resource watched, or starts to watch them again. Writes only when half of the time
 * has passed.
 */
export async function watch(ctx: Context, resource: string): Promise<void> {
  const now = ctx.now().getTime()
  await ctx.db
    .updateTable("deposits")
    .set({ watched: true, watched_until: new Date(now + WATCH_MS) })
    .where("resource_id", "=", resource)
    .where(eb => eb.or([eb("watched", "=", false), eb("watched_until", "<", new Date(now + WATCH_MS / 2))]))
    .execute()
}
