/**
 * Explains a deposit's relays to their payer: whether a relay may still bring money, why one failed, and whether anyone
 * can still submit its authorization.
 */
import { sql } from "kysely"
import { validBeforeOf } from "../../platform/chain/authorizations.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"

/**
 * SQL: whether a transaction that executes the authorization of a row of `payouts` was ever signed. If not, only the
 * payer and the service have the authorization, and an empty transfer used up the relay's nonce at the deadline.
 */
export const wasSigned = sql<boolean>`exists (select from transaction_attempts signed where signed.payout_id = coalesce(payouts.batch_id, payouts.id)
  and not signed.empty and signed.raw is not null)`

/** The reason for a relay that was not signed in time. */
export const TOO_LATE = "The authorization could not be executed before its deadline."

/**
 * Returns the relays whose authorization anyone can still submit: the relay's transaction is public and reverted for
 * good, and `validBefore` has not passed. A buyer who pays in another way meanwhile may pay twice.
 */
export const replayable = <R extends Pick<Row<"payouts">, "state" | "data"> & { was_signed: boolean }>(
  ctx: TxContext,
  relays: readonly R[],
): R[] =>
  relays.filter(
    ({ state, data, was_signed }) =>
      state === "reverted" && was_signed && validBeforeOf(data) * 1_000n > BigInt(ctx.now().getTime()),
  )

/** Returns the time after which none of the authorizations of these relays can be used; undefined for an empty list. */
export function replayableUntil(relays: readonly Pick<Row<"payouts">, "data">[]): string | undefined {
  if (relays.length === 0) return undefined
  const last = relays.map(({ data }) => validBeforeOf(data)).reduce((a, b) => (a > b ? a : b))
  return new Date(Number.parseInt(`${last * 1_000n}`, 10)).toISOString()
}

/**
 * Describes a deposit's relays: whether one may still bring `token` that is missing, and why the last one failed. A
 * later submission clears `failure`. Until `replayableUntil`, anyone can submit the authorization of a failed relay.
 */
export async function relayStanding(
  ctx: TxContext,
  { id: depositId, address }: Pick<Row<"deposits">, "id" | "address">,
  token: Address,
): Promise<{ open: boolean; failure: string | null; replayableUntil: string | undefined; hashes: Set<Hash> }> {
  const relays = await ctx.db
    .selectFrom("payouts")
    .innerJoin("deposits", "deposits.id", "payouts.deposit_id")
    .modifyFront(sql`/* named: relay_standing */`)
    .select(eb => [
      "payouts.state",
      "payouts.tx_hash",
      "payouts.held_detail",
      "payouts.data",
      wasSigned.as("was_signed"),
      eb
        .exists(
          eb
            .selectFrom("submissions")
            .select("submissions.id")
            .whereRef("submissions.resource_id", "=", "deposits.resource_id")
            .whereRef("submissions.submitted_at", ">", "payouts.updated_at"),
        )
        .as("outdated"),
      eb
        .exists(
          eb
            .selectFrom("transfers")
            .select("transfers.id")
            .whereRef("transfers.chain_id", "=", "payouts.chain_id")
            .whereRef("transfers.tx_hash", "=", "payouts.tx_hash")
            .where("transfers.token", "=", token)
            .where("transfers.to_address", "=", address)
            .where("transfers.state", "<>", "gone"),
        )
        .as("arrived"),
    ])
    .where("payouts.deposit_id", "=", depositId)
    .where(sql<boolean>`payouts.kind in ${kindsThat(({ isPublic }) => isPublic)}`)
    .orderBy("payouts.created_at", "desc")
    .orderBy("payouts.id")
    .execute()
  const open = relays.some(
    ({ state, tx_hash: hash, arrived }) =>
      ["queued", "held", "assigned"].includes(state) ||
      (["mined", "final"].includes(state) && hash !== null && !arrived),
  )
  const until = replayableUntil(replayable(ctx, relays))
  const hashes = new Set(relays.flatMap(({ tx_hash: hash }) => hash ?? []))
  const [last] = relays
  return {
    open,
    failure: open || !last || last.outdated ? null : failureOf(last, until),
    replayableUntil: until,
    hashes,
  }
}

/** Returns why an ended relay paid nothing, in sentences; null for a relay that paid. */
function failureOf(
  { state, held_detail: detail, was_signed }: Pick<Row<"payouts">, "state" | "held_detail"> & { was_signed: boolean },
  until: string | undefined,
): string | null {
  const words =
    state === "cancelled"
      ? (detail ?? "It was not executed.")
      : state === "reverted"
        ? !was_signed
          ? TOO_LATE
          : "The authorized transfer failed on chain."
        : null
  if (words === null || until !== undefined) return words
  return `${words} It paid nothing: sign again, or send the payment yourself.`
}
