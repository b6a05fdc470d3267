/**
 * Looks up what an operator names (networks, wallets with their signers, payouts), and defines the errors for what
 * does not exist.
 */

import { storageOf } from "../../ledger/receipts/zerog/storage.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { Network, ReachableChain } from "../../platform/chain/networks.ts"
import type { Signer } from "../../platform/chain/signer.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { LaneName } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"

/** A wallet as an operator names it: by its address or its lane, and by its network if several wallets match. */
export interface WalletNamed {
  wallet: string
  network?: string | undefined
}

/** The error for an action that is not possible in the current state; the message says what to do instead. */
export const refused = (words: string): ApiError => new ApiError("INVALID_OPERATION", undefined, words)

const notFound = (words: string): ApiError => new ApiError("NOT_FOUND", undefined, words)

/** A chain's name; `chain <id>` if the settings no longer have the chain. */
export const networkNamed = ({ chain, settings }: TxContext, chainId: number): string =>
  chain.networks.find(each => each.chainId === chainId)?.name ??
  (chainId === settings.receipts.zerog?.chainId ? "0g" : `chain ${chainId}`)

/** The network with this chain id on which payments are made; undefined for any other chain, such as 0G's. */
export const networkAt = ({ chain }: Context, chainId: number): Network | undefined =>
  chain.networks.find(each => each.chainId === chainId)

/** All chains on which a wallet of ours may have sent something, with their endpoints. */
export function askedChains({ chain, settings: { receipts } }: Pick<Context, "chain" | "settings">): ReachableChain[] {
  return [...chain.networks, ...(receipts.zerog ? [storageOf(receipts.zerog).chain] : [])]
}

/** The chain of a wallet or a payout; undefined if the settings no longer have the chain. */
export const servedChain = (ctx: Context, chainId: number): ReachableChain | undefined =>
  askedChains(ctx).find(chain => chain.chainId === chainId)

/** The chain of a wallet or a payout; throws if the settings no longer have the chain. */
export function chainToAsk(ctx: Context, chainId: number): ReachableChain {
  const chain = servedChain(ctx, chainId)
  if (!chain)
    throw refused(`The settings name no endpoint of ${networkNamed(ctx, chainId)}, so the network can't be queried.`)
  return chain
}

/** The lane for which a wallet signs, according to the settings; null if they don't name the wallet. */
export function laneOf(
  { settings }: Context,
  { address, lane }: Pick<Row<"wallets">, "address" | "lane">,
): LaneName | null {
  // One key may belong to the storage wallet on 0G's chain and to another wallet elsewhere.
  if (lane === "storage") return address === settings.storageSigner?.address ? "storage" : null
  if (address === settings.payoutWallet || address === settings.payoutSigner?.address) return "payout"
  return address === settings.relayWallet ? "relay" : null
}

/** The signer of a wallet; throws if this process does not have the wallet's key. */
export function signerOf({ settings }: Context, { address }: Row<"wallets">): Signer {
  const signers = [settings.payoutSigner, settings.relaySigner, settings.storageSigner]
  const signer = signers.find(each => each?.address === address)
  if (!signer) throw refused(`The service does not have the key of the wallet ${checksummed(address)}.`)
  return signer
}

/** The only wallet that matches; throws an error that lists the wallets if none or several match. */
export async function findWallet(ctx: Context, named: WalletNamed): Promise<Row<"wallets">> {
  const rows = await ctx.db.selectFrom("wallets").selectAll().orderBy("id").execute()
  const text = named.wallet.toLowerCase()
  const meant = rows.filter(
    row =>
      (row.address === text || laneOf(ctx, row) === text) &&
      (named.network === undefined || networkNamed(ctx, row.chain_id) === named.network),
  )
  const [first, second] = meant
  if (first && !second) return first
  const list = (first ? meant : rows)
    .map(row => `${checksummed(row.address)} on ${networkNamed(ctx, row.chain_id)}`)
    .join(", ")
  if (second) throw invalid("network", `is required, because several wallets match: ${list}`)
  throw notFound(list ? `There is no such wallet. The wallets are: ${list}.` : "No wallet has been used yet.")
}

/** A payout by its id; throws a 404 if there is none. */
export async function findPayout(ctx: TxContext, id: string): Promise<Row<"payouts">> {
  const row = await ctx.db.selectFrom("payouts").selectAll().where("id", "=", id).executeTakeFirst()
  if (!row) throw notFound(`No payout has the id ${id}.`)
  return row
}
