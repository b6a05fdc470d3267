/** Stores the address that a payer names for returns, signed by the wallet that sent the money. */
import { sql } from "kysely"
import { type Door, proveWallet, type Signed, useProof } from "../../account/identity/prove-wallet.ts"
import { refusalsOf } from "../../account/identity/refuse-addresses.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import type { SellingContext } from "./sellable.ts"
import { sellableOf } from "./sellable.ts"

export const RETURN_ADDRESS_PATH = "/api/pay/return-address"

/**
 * Returns the scope of the signature: the paid resource and the address. So the signature is valid for no other
 * resource or address.
 */
export const returnUse = (resourceId: string, address: Address): Pick<Door, "purpose" | "resource"> => ({
  purpose: "return",
  resource: `${resourceId}:${address}`,
})

/** Returns the network of a resource. Throws the `notFound` of its kind if there is no such resource. */
export async function chainOf(ctx: SellingContext, resourceId: string): Promise<number> {
  const row = await ctx.db.selectFrom("resources").select("chain_id").where("id", "=", resourceId).executeTakeFirst()
  if (!row) throw new ApiError(sellableOf(ctx, resourceId).notFound)
  return row.chain_id
}

/** SQL: whether the whole payment or its surplus waits for the merchant. */
const isWaiting = sql<boolean>`(payments.status = 'open' or (payments.status = 'granted'
  and exists (select from surpluses s where s.payment_id = payments.id and s.state = 'open')))`

/**
 * Stores the address with its evidence and returns the payer. A payer's newest address counts. Throws
 * `PAYMENT_NOT_FOUND` if no money of the signer waits at the resource, and `VALIDATION_ERROR` for an address that must
 * not receive money. Also throws `SANCTIONS_MATCH` and the errors of {@link proveWallet}.
 */
export async function nameReturnAddress(
  ctx: SellingContext,
  resourceId: string,
  address: Address,
  signed: Signed,
): Promise<Address> {
  const networks = [networkOf(ctx.chain, await chainOf(ctx, resourceId))]
  const refusal = (await refusalsOf(ctx, [address])).get(address)
  if (refusal) throw invalid("address", refusal)
  const door: Door = { ...returnUse(resourceId, address), path: RETURN_ADDRESS_PATH, networks }
  const proof = await proveWallet(ctx, door, signed)
  const screened = await screen(ctx, [...new Set([address, proof.address])], `return:${resourceId}`)
  if ([...screened.values()].includes("listed")) throw new ApiError("SANCTIONS_MATCH")
  await inTransaction(ctx, async ctx => {
    const waiting = await ctx.db
      .selectFrom("payments")
      .select("id")
      .where("resource_id", "=", resourceId)
      .where("payer", "=", proof.address)
      .where(isWaiting)
      .limit(1)
      .executeTakeFirst()
    if (!waiting)
      throw new ApiError(
        "PAYMENT_NOT_FOUND",
        undefined,
        `No money from ${checksummed(proof.address)} waits for the merchant's decision there. Full payments are not returned.`,
      )
    await useProof(ctx, door, proof)
    await ctx.db
      .insertInto("return_addresses")
      .values({ resource_id: resourceId, payer: proof.address, address, ...signed, named_at: ctx.now() })
      .execute()
  })
  return proof.address
}

/** Returns the newest address that a payment's payer named, with its evidence. */
export const namedAddress = (
  ctx: TxContext,
  { resource_id, payer }: Pick<Row<"payments">, "resource_id" | "payer">,
): Promise<Row<"return_addresses"> | undefined> =>
  ctx.db
    .selectFrom("return_addresses")
    .selectAll()
    .where("resource_id", "=", resource_id)
    .where("payer", "=", payer)
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirst()
