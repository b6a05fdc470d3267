/** Makes receiving addresses: known before anything is deployed there, each for one thing that is sold. */
import { randomBytes } from "node:crypto"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositAddress, depositImplementation } from "./address.ts"

/** What a receiving address is for. */
type Resource = { paywallId: string } | { sessionId: string; endsAt: Date }

/** After so long anyone may send what still lies at a paywall's address to its owner; before that it gets a new one. */
const PAYWALL_OPEN_AFTER_S = 365 * 86_400

/** The same after a session's end, in which what comes late is still found. */
const SESSION_OPEN_AFTER_S = 30 * 86_400
/** A new session's page is open: its address is in the scan for so long from the start. */
const SESSION_HOT_MS = 3_600_000

/** A new receiving address for a paywall or a session, whose money belongs to `owner`. */
export async function makeDeposit(
  ctx: Context,
  network: Network,
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

/** Whoever looks at what is sold at an address may be about to pay: the address stays in the scan for so long. */
const WARM_MS = 3_600_000

/** Keeps, or puts back, the addresses of a paywall or session in the scan; writes only when half of the time has gone by. */
export async function warm(ctx: Context, resource: string): Promise<void> {
  const now = ctx.now().getTime()
  await ctx.db
    .updateTable("deposits")
    .set({ hot: true, hot_until: new Date(now + WARM_MS) })
    .where(eb => eb.or([eb("paywall_id", "=", resource), eb("session_id", "=", resource)]))
    .where(eb => eb.or([eb("hot", "=", false), eb("hot_until", "<", new Date(now + WARM_MS / 2))]))
    .execute()
}
