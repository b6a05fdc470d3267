/**
 * Whether the relay wallet would carry out a signed authorization, and its row. All is checked before anything is written, as
 * each relay costs the service gas.
 */
import { randomUUID } from "node:crypto"
import type { Hex } from "viem"
import { type Authorization, readSignature, relayCall, type SignedBy } from "../chain/authorizations.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "../chain/hex.ts"
import type { Network, NetworkInfo } from "../chain/networks.ts"
import { marked } from "../chain/release-call.ts"
import { screen } from "../chain/sanctions.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { relaysSpent } from "./gas-budget.ts"
import { NO_BUDGET, NO_CONTRACT_BUDGET, RELAY_GAS, tryRelay } from "./relays.ts"
import { areContractRelaysSpent, isTotalSpent } from "./total-budget.ts"

/** Why an authorization is not relayed. */
type RelayRefusal =
  /** No relay wallet is at work on the network, or it is halted. */
  | "no_wallet"
  /** The gas budget of the merchant, of all merchants, or of contract wallets is spent. */
  | "budget"
  | "listed"
  /** No source of sanctions answers. */
  | "unscreened"
  | "signature"
  | "used"
  /** The receiving address holds money that the scan has not found yet. */
  | "unseen"
  /** The payer holds too little. */
  | "short"
  /** The token would refuse the transfer. */
  | "fails"

export interface RefusedRelay {
  refusal: RelayRefusal
  /** A sentence; for a signature, a clause that follows "the signature". */
  words: string
}

/** A relay that may be written: its id, calldata and gas limit. */
export interface CheckedRelay {
  id: string
  data: Hex
  gas: bigint
  by: SignedBy
}

/** What is to be relayed, and for whom. */
interface RelayRequest {
  merchantId: string
  /** What the payer is screened for, as the log says it. */
  purpose: string
  authorization: Authorization
  digest: Hash
  signature: Hex
  /** The receiving address, where money that has just arrived there would be the same payment. */
  deposit?: Pick<Row<"deposits">, "id" | "address">
}

/** Checks everything that does not depend on what is paid. Writes nothing; `CHAIN_UNAVAILABLE` when too few endpoints agree. */
export async function checkRelay(
  ctx: Context,
  network: Network,
  { merchantId, purpose, authorization, digest, signature, deposit }: RelayRequest,
): Promise<CheckedRelay | RefusedRelay> {
  const { from, nonce, value: amount } = authorization
  const wallet = await relayWallet(ctx, network)
  if (!wallet) return refused("no_wallet", "")
  if (await relaysSpent(ctx, merchantId, { chain_id: network.chainId, address: wallet }, RELAY_GAS.key))
    return refused("budget", NO_BUDGET)
  // Before the screening: a forged signature must not have a stranger's address sent to a source of sanctions.
  const by = await readSignature(ctx, network, { from, digest, signature })
  if (typeof by === "object") return refused("signature", by.fault)
  const screening = (await screen(ctx, [from], purpose)).get(from)
  if (screening === "listed") return refused("listed", "")
  if (screening === "unknown") return refused("unscreened", "")
  const id = randomUUID()
  const data = marked(relayCall(authorization, signature, by), id)
  const trial = await tryRelay(ctx, network, { wallet, deposit, payer: from, nonce, amount, data, by })
  if (trial === "used" || trial === "unseen") return refused(trial, "")
  if ("words" in trial) return refused(trial.isShort ? "short" : "fails", trial.words)
  const { gas, most } = trial
  if (await isTotalSpent(ctx, most)) return refused("budget", NO_BUDGET)
  if (by === "contract" && (await areContractRelaysSpent(ctx, network.chainId, most)))
    return refused("budget", NO_CONTRACT_BUDGET)
  return { id, data, gas, by }
}

const refused = (refusal: RelayRefusal, words: string): RefusedRelay => ({ refusal, words })

/** The relay wallet's address; undefined where none was ever at work on the network, or it is halted. */
async function relayWallet(ctx: TxContext, { chainId }: NetworkInfo): Promise<Address | undefined> {
  const wallet = await ctx.db
    .selectFrom("wallets")
    .select("address")
    .where("chain_id", "=", chainId)
    .where("address", "=", ctx.settings.relayWallet ?? ZERO_ADDRESS)
    .where("status", "=", "active")
    .executeTakeFirst()
  return wallet?.address
}

/** What a relay's row says beside its call. */
interface NewRelay {
  kind: "authorize" | "settle"
  authorization: Authorization
  digest: Hash
  /** When it is cancelled, where it is not signed by then. */
  relayBy: Date
  /** The deposit that it pays; without one, the merchant whose budget it uses. */
  to: { depositId: bigint } | { merchantId: string }
}

/** Writes the relay; false where another relay of this nonce was quicker. Call it inside a transaction. */
export async function writeRelay(
  ctx: TxContext,
  { chainId, token }: NetworkInfo,
  { id, data, gas }: Pick<CheckedRelay, "id" | "data" | "gas">,
  { kind, authorization: { from, to: recipient, value, nonce }, digest, relayBy, to }: NewRelay,
): Promise<boolean> {
  const generation = (await relaysOf(ctx, { chainId, token }, from, nonce)).length
  const now = ctx.now()
  const made = await ctx.db
    .insertInto("payouts")
    .values({
      id,
      chain_id: chainId,
      kind,
      source_key: `${kind}:${chainId}:${token.address}:${from}:${nonce}:${generation}`,
      ...("depositId" in to ? { deposit_id: to.depositId } : { merchant_id: to.merchantId }),
      token: token.address,
      recipient,
      amount: value,
      to_address: token.address,
      data,
      gas,
      payer: from,
      auth_nonce: nonce,
      auth_digest: digest,
      relay_by: relayBy,
      reserved: false,
      state: "queued",
      run_at: now,
      created_at: now,
      updated_at: now,
    })
    .onConflict(conflict => conflict.doNothing())
    .executeTakeFirst()
  return made.numInsertedOrUpdatedRows === 1n
}

/** The relays that were ever made of a payer's nonce. */
export const relaysOf = (
  ctx: TxContext,
  { chainId, token }: Pick<NetworkInfo, "chainId" | "token">,
  payer: Address,
  nonce: Hash,
): Promise<Row<"payouts">[]> =>
  ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", chainId)
    .where("token", "=", token.address)
    .where("payer", "=", payer)
    .where("auth_nonce", "=", nonce)
    .execute()
