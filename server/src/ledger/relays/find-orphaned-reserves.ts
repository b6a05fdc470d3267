/** Finds escrow calls for an earlier relay wallet that were not signed before the wallet was replaced. */
import { sql } from "kysely"
import { ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"

/** The reason for cancelling a reservation that was accepted for an earlier relay wallet. */
export const OTHER_WALLET =
  "The service can no longer reserve this payment, because its relay wallet changed. Nothing was paid: start a new checkout."
/** The reason for cancelling a call when the payer reclaimed the money that it needs. */
export const TAKEN_BACK = "No money is reserved any more."
/** After this many minutes, no other process with the earlier wallet's key is expected to sign an old reservation. */
const ORPHANED_MINUTES = 15

/** Selects unsigned escrow calls of some kinds. */
const unsignedCalls = (ctx: Context, { chainId }: Network, is: Parameters<typeof kindsThat>[0]) =>
  ctx.db
    .selectFrom("payouts")
    .innerJoin("escrows", "escrows.session_id", "payouts.escrow_id")
    .selectAll("payouts")
    .where("payouts.chain_id", "=", chainId)
    .where("payouts.lane", "=", "relay")
    .where(sql<boolean>`payouts.kind in ${kindsThat(is)}`)
    .where("payouts.state", "in", ["queued", "held"])

/**
 * Returns unsigned reservations that only another relay wallet could make, and that no recent process served. If two
 * wallets are in use, each keeps its own reservations.
 */
export const orphanedReserves = (ctx: Context, network: Network): Promise<Row<"payouts">[]> => {
  // A process whose clock is ahead must not mistake another active wallet for an earlier one.
  const before = sql<Date>`${dueNow(ctx.now())} - make_interval(mins => ${ORPHANED_MINUTES})`
  return unsignedCalls(ctx, network, ({ isReservation }) => isReservation)
    .where("payouts.created_at", "<=", before)
    .where("escrows.operator", "<>", ctx.settings.relayWallet ?? ZERO_ADDRESS)
    .where(
      sql<boolean>`not exists (select from wallets w where w.chain_id = payouts.chain_id and w.lane = 'relay'
        and w.address = escrows.operator and w.run_at > ${before})`,
    )
    .execute()
}

/**
 * Returns unsigned captures and voids of money that the payer reclaimed. The process with the relay wallet's key
 * cancels these calls too, but after a wallet change there may be no such process.
 */
export const reclaimedCalls = (ctx: Context, network: Network): Promise<Row<"payouts">[]> =>
  unsignedCalls(ctx, network, ({ moneyOf }) => moneyOf === "escrow")
    .where("escrows.reclaimed", ">", 0n)
    .execute()
