/** What a receiving address commits to, for everyone who wants to know where its money can go. */
import { addressOfTerms, type Payee, payeesHash } from "../../platform/chain/deposit-terms.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { payeesOfSets } from "./make-deposits.ts"

/** An address's row with the payees of its split, in the order of `payees_hash`; without a split there are none. */
export interface CommittedTerms {
  row: Row<"deposits">
  payees: readonly Payee[]
}

/**
 * Reads the terms of a receiving address. Throws `DEPOSIT_NOT_FOUND` where it is not the service's, and where the
 * address can't be computed from what the database says.
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
    // If the database was altered, the service must not confirm other terms than the address commits to.
    if (addressOfTerms(row.factory, row.salt, terms) === address) return { row, payees }
  }
  throw new ApiError("DEPOSIT_NOT_FOUND")
}
