/** Reads what a receiving address commits to, for anyone who wants to know where money there can go. */
import { addressOfTerms, type Payee, payeesHash } from "../../platform/chain/deposit-terms.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { payeesOfSets } from "./make-deposits.ts"

/** An address's row with its split's payees, in the order of `payees_hash`; without a split there are no payees. */
export interface CommittedTerms {
  row: Row<"deposits">
  payees: readonly Payee[]
}

/**
 * Reads a receiving address's terms. Throws `DEPOSIT_NOT_FOUND` if the address does not belong to the service, or can't
 * be computed from the database.
 */
export async function termsOf(ctx: TxContext, address: Address): Promise<CommittedTerms> {
  const chainIds = ctx.chain.networks.map(({ chainId }) => chainId)
  const rows = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("chain_id", "in", chainIds)
    .where("address", "=", address)
    .orderBy("id")
    .execute()
  for (const row of rows) {
    const payees = (await payeesOfSets(ctx, [row.recipient_set_id ?? []].flat())).get(row.recipient_set_id ?? -1n) ?? []
    const { owner, approver, open_after_s: openAfter } = row
    const terms = { owner, approver, payeesHash: payeesHash(payees), openAfter }
    // If the database was altered, the service must not confirm terms that the address does not commit to.
    if (addressOfTerms(row.factory, row.salt, terms) === address) return { row, payees }
  }
  throw new ApiError("DEPOSIT_NOT_FOUND")
}
