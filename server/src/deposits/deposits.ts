/** Makes receiving addresses: known before anything is deployed there, each for one thing that is sold. */
import { randomBytes } from "node:crypto"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositAddress, depositImplementation } from "./address.ts"

/** After so long anyone may send what still lies at a paywall's address to its owner; before that it gets a new one. */
const PAYWALL_OPEN_AFTER_S = 365 * 86_400

/** A new receiving address for a paywall, whose money belongs to `owner`. */
export async function makeDeposit(
  ctx: Context,
  network: Network,
  { paywallId, owner }: { paywallId: string; owner: Address },
): Promise<Row<"deposits">> {
  const salt = `0x${randomBytes(32).toString("hex")}` as Hash
  const openAfter = BigInt(Math.floor(ctx.now().getTime() / 1_000) + PAYWALL_OPEN_AFTER_S)
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
      paywall_id: paywallId,
      created_at: ctx.now(),
      hot_until: ctx.now(),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}
