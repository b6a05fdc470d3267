/**
 * Looks up what an operator names (networks, wallets with their signers, payouts), and defines the errors if these do
 * not exist.
 */
import { checksummed } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Signer } from "../../platform/chain/signer.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"

/** A wallet as an operator names it: its address or its lane, and the network if there are several of them. */
export interface WalletNamed {
  wallet: string
  network?: string | undefined
}

export type WalletLane = "payout" | "relay"

/** The error for an action that is not possible in the current state; the message says what to do instead. */
export const refused = (words: string): ApiError => new ApiError("INVALID_OPERATION", undefined, words)

const notFound = (words: string): ApiError => new ApiError("NOT_FOUND", undefined, words)

/** A chain's name; `chain <id>` if the settings no longer have it. */
export const networkNamed = (ctx: TxContext, chainId: number): string =>
  ctx.chain.networks.find(each => each.chainId === chainId)?.name ?? `chain ${chainId}`

/** The network of a wallet or a payout; throws if the settings no longer have it. */
export function servedNetwork(ctx: Context, chainId: number): Network {
  const network = ctx.chain.networks.find(each => each.chainId === chainId)
  if (!network) throw refused(`NETWORKS does not name the network of chain ${chainId}, so it can't be asked.`)
  return network
}

/** The lane that a wallet signs for, by the settings; null if they don't name the wallet. */
export function laneOf({ settings }: Context, { address }: Pick<Row<"wallets">, "address">): WalletLane | null {
  if (address === settings.payoutWallet || address === settings.payoutSigner?.address) return "payout"
  return address === settings.relayWallet ? "relay" : null
}

/** The signer of a wallet; throws if this process does not have its key. */
export function signerOf({ settings }: Context, { address }: Row<"wallets">): Signer {
  const signer = [settings.payoutSigner, settings.relaySigner].find(each => each?.address === address)
  if (!signer) throw refused(`The service does not have the key of the wallet ${checksummed(address)}.`)
  return signer
}

/** The one wallet that matches; throws a 404 that lists all wallets. */
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
  if (second) throw invalid("network", `is required, as several wallets match: ${list}`)
  throw notFound(list ? `No such wallet. There are: ${list}.` : "No wallet has been used yet.")
}

/** A payout by its id; throws a 404 if there is none. */
export async function findPayout(ctx: TxContext, id: string): Promise<Row<"payouts">> {
  const row = await ctx.db.selectFrom("payouts").selectAll().where("id", "=", id).executeTakeFirst()
  if (!row) throw notFound(`No payout has the id ${id}.`)
  return row
}
