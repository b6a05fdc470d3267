/** Addresses that must never receive a merchant's or payer's money. */
import { sql } from "kysely"
import { implementationOf } from "../../platform/chain/deposit-terms.ts"
import { knownEscrows, tokenStoreOf } from "../../platform/chain/escrow-deployments.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { noOwnerOf } from "../../platform/chain/known-contracts.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/**
 * Why money must not be sent to some of these addresses. The money would be stranded at an address of this service, or
 * at one that nobody controls.
 */
export async function refusalsOf(ctx: TxContext, addresses: readonly Address[]): Promise<Map<Address, string>> {
  const refusals = new Map<Address, string>()
  if (addresses.length === 0) return refusals
  const deposits = await ctx.db
    .selectFrom("deposits")
    .select("address")
    .where("address", "in", [...addresses])
    .execute()
  const putAway = await sql<{ address: Address }>`select '0x' || encode(address, 'hex') as address from put_away
    where address = any(select decode(substr(a, 3), 'hex') from unnest(${sqlArray("text", addresses)}) a)`.execute(
    ctx.db,
  )
  for (const { address } of [...deposits, ...putAway.rows])
    refusals.set(address, "is a receiving address of this service: use your own wallet")
  // Wallets of every network, including those that were used earlier.
  const wallets = await ctx.db
    .selectFrom("wallets")
    .select("address")
    .where("address", "in", [...addresses])
    .execute()
  for (const { address } of wallets) refusals.set(address, "is a wallet of this service: use your own wallet")
  const stores = await tokenStores(ctx)
  for (const address of addresses) {
    if (stores.has(address)) refusals.set(address, "is the address where the escrow keeps reserved money: use a wallet")
    const noOwner = noOwnerOf(address)
    if (noOwner) refusals.set(address, noOwner)
    if (ctx.settings.serviceWallets.includes(address))
      refusals.set(address, "is a wallet of this service: use your own wallet")
    for (const { token, depositFactory, escrow, sanctionsOracle } of ctx.chain.networks) {
      if (escrow && [escrow.address, escrow.collector, escrow.refundCollector].includes(address))
        refusals.set(address, "is a contract of the escrow: use a wallet")
      if (address === sanctionsOracle) refusals.set(address, "is the sanctions oracle: use a wallet")
      if (address === token.address) refusals.set(address, "is a token contract: use a wallet")
      if (address === depositFactory || (depositFactory && address === implementationOf(depositFactory)))
        refusals.set(address, "is the deposit factory: use a wallet")
    }
  }
  return refusals
}

/**
 * The addresses where escrows hold money that this service's relay wallets reserved, including those of earlier
 * settings.
 */
async function tokenStores(ctx: TxContext): Promise<Set<Address>> {
  const wallets = await ctx.db.selectFrom("wallets").select("address").execute()
  const operators = new Set([...wallets.map(({ address }) => address), ...ctx.settings.serviceWallets])
  const served = ctx.chain.networks.flatMap(({ escrow }) => (escrow ? [escrow.address] : []))
  const escrows = new Set([...served, ...knownEscrows.map(({ address }) => address)])
  return new Set([...escrows].flatMap(escrow => [...operators].map(operator => tokenStoreOf(escrow, operator))))
}
