/** Reservations that were accepted for an earlier relay wallet and not signed before it was replaced. */
import { ZERO_ADDRESS } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"

/** The reason when a reservation was accepted for a relay wallet that is no longer ours. */
export const OTHER_WALLET =
  "The service can't reserve this payment any more, as its relay wallet was changed. Nothing was paid: start a new checkout."
/** After this long, no other process that still has the earlier wallet's key is expected to sign a reservation. */
const ORPHANED_MS = 15 * 60_000

/** Returns unsigned reservations that only an earlier relay wallet could make. */
export const orphanedReserves = (ctx: Context, { chainId }: Network): Promise<Row<"payouts">[]> =>
  ctx.db
    .selectFrom("payouts")
    .innerJoin("escrows", "escrows.session_id", "payouts.escrow_id")
    .selectAll("payouts")
    .where("payouts.chain_id", "=", chainId)
    .where("payouts.lane", "=", "relay")
    .where("payouts.kind", "=", "reserve")
    .where("payouts.state", "in", ["queued", "held"])
    .where("payouts.created_at", "<=", new Date(ctx.now().getTime() - ORPHANED_MS))
    .where("escrows.operator", "<>", ctx.settings.relayWallet ?? ZERO_ADDRESS)
    .execute()
