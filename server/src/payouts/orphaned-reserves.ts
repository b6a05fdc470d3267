/** Reservations that were accepted for a relay wallet that was changed before they were signed. */
import { ZERO_ADDRESS } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"

/** The reason when a reservation was accepted for a relay wallet that is not ours any more. */
export const OTHER_WALLET =
  "The service can't reserve this payment any more, as its relay wallet was changed. Nothing was paid: start a new checkout."
/** A reservation that waits so long waits for no other process that still has the earlier wallet's key. */
const ORPHANED_MS = 15 * 60_000

/** Reservations that only an earlier relay wallet could make, and that nobody has signed. */
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
