/** A merchant's payout addresses, and the wallets that approve its changes. */
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"

/** A payout wallet that approved a change. */
export interface Signer {
  chainId: number
  address: Address
  /**
   * Whether the wallet's key signed. A key has the same address on every network, but a contract can sign for its
   * address only on its own network.
   */
  byKey: boolean
}

export const payoutAddresses = (ctx: TxContext, merchantId: string): Promise<Row<"payout_addresses">[]> =>
  ctx.db.selectFrom("payout_addresses").selectAll().where("merchant_id", "=", merchantId).execute()

/** A merchant's payout address on a network; throws `PAYOUT_ADDRESS_REQUIRED` if none is set. */
export async function payoutAddressOn(ctx: TxContext, merchantId: string, network: NetworkInfo): Promise<Address> {
  const row = (await payoutAddresses(ctx, merchantId)).find(each => each.chain_id === network.chainId)
  if (!row) throw new ApiError("PAYOUT_ADDRESS_REQUIRED")
  return row.address
}
