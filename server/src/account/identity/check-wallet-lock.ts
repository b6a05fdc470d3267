/**
 * The wallet lock. While the lock is on, a change to who gets the merchant's money needs the payout wallet's signature,
 * so a stolen console token is not enough. A request without the signature is refused with the EIP-712 data to sign.
 * The same request with the header `Wallet-Signature: <nonce> <signature>` succeeds. Switching the lock on needs a
 * signature from every payout address, which proves that the merchant controls all of them.
 */
import { createHash } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import type { FastifyRequest } from "fastify"
import { type Hex, hashTypedData } from "viem"
import { isSignedByKey, readSignature } from "../../platform/chain/check-signatures.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import { chainName } from "../../platform/chain/network-facts.ts"
import { typedData, walletJson } from "../../platform/chain/typed-data.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import { ApiError } from "../../platform/errors.ts"
import { makeNonce, type NonceUse, nonceExpiry, takeNonce } from "./make-nonces.ts"
import { payoutAddresses, type Signer } from "./read-payout-addresses.ts"

/** One change, described for the merchant. Every field is signed, so a signature is valid only for this change. */
interface WalletChange {
  /** Such as `Change split`. */
  action: string
  /** What changes: an id, or the name of what is created. */
  subject: string
  /** Who is paid before and after, or what else changes. */
  from: string
  to: string
}

const MERCHANT_CHANGE = [
  { name: "service", type: "string" },
  { name: "merchant", type: "string" },
  { name: "action", type: "string" },
  { name: "subject", type: "string" },
  { name: "from", type: "string" },
  { name: "to", type: "string" },
  { name: "nonce", type: "string" },
  { name: "expiresAt", type: "string" },
] as const

const HEADER = "Wallet-Signature"
/** The form of the header: a nonce, then signatures of at most 4 KB each. All headers of a request share 16 KB. */
const FORM = /^([A-Za-z0-9]{1,64})((?: 0x(?:[0-9a-fA-F]{2}){0,4096})+)$/

/** The part of a request that the lock protects. */
export interface ProtectedChange {
  words: WalletChange
  /** Whether the change needs the signature even while the lock is off. */
  always?: boolean
  /** Whether every payout address must sign, instead of only the one in effect longest. */
  byAll?: boolean
}

/** Reads the protected part of a request from the current state; undefined if nothing is protected. */
type ReadChange = (ctx: TxContext) => Promise<ProtectedChange | undefined>

export interface Approval {
  /** The signing wallet whose address has been in effect longest; undefined if no signature was needed. */
  signer: Signer | undefined
  /**
   * Throws `WALLET_SIGNATURE_REQUIRED` if the change needs a different approval now than when it was requested. Either
   * the lock was switched on, or the object to change differs from what was signed. Call `hold` first in the change's
   * transaction, because `hold` locks the merchant's row as every such change does.
   */
  hold(ctx: TxContext): Promise<void>
}

/** Whether the merchant has the lock on. */
export const isLocked = async (ctx: TxContext, merchantId: string): Promise<boolean> =>
  (await ctx.db.selectFrom("merchants").select("wallet_lock").where("id", "=", merchantId).executeTakeFirstOrThrow())
    .wallet_lock

/**
 * Checks that the payout wallet approves the change that `read` returns, and uses up the signature. The signature is
 * needed while the lock is on, or if `always` is set. Throws `WALLET_SIGNATURE_REQUIRED` with the data to sign,
 * `PAYOUT_ADDRESS_REQUIRED` without a wallet, or `CHAIN_UNAVAILABLE`. The check queries nodes about contract wallets,
 * so call it outside transactions and after all other checks. Call `hold` inside the transaction.
 */
export async function approvedByWallet(
  ctx: Context,
  request: Pick<FastifyRequest, "headers">,
  merchantId: string,
  read: ReadChange,
): Promise<Approval> {
  const isNeeded = async (ctx: TxContext, change: ProtectedChange | undefined) =>
    change !== undefined && (change.always === true || (await isLocked(ctx, merchantId)))
  const checked = await read(ctx)
  const wallets = checked && (await isNeeded(ctx, checked)) ? await signingWallets(ctx, merchantId, checked) : undefined
  const signed = checked && wallets ? await signersOf(ctx, request, merchantId, checked.words, wallets) : undefined
  const hold = async (ctx: TxContext) => {
    await lockMerchant(ctx.db, merchantId)
    const present = await read(ctx)
    if (!wallets && !(await isNeeded(ctx, present))) return
    const same =
      present &&
      isDeepStrictEqual(present, checked) &&
      isDeepStrictEqual(await signingWallets(ctx, merchantId, present), wallets)
    if (!same)
      throw new ApiError(
        "WALLET_SIGNATURE_REQUIRED",
        undefined,
        "Another request changed the settings at the same time. Send the request again.",
      )
    if (present.byAll && signed) await writeProofs(ctx, merchantId, signed)
  }
  return { signer: signed?.[0], hold }
}

/**
 * Records that the signing wallets are now the only way to change their merchant's settings.
 * `relays/find-refund-owners.ts` reads which merchant a wallet belongs to.
 */
async function writeProofs(ctx: TxContext, merchantId: string, signers: readonly Signer[]): Promise<void> {
  const proven = signers.map(({ chainId, address, byKey }) => ({
    merchant_id: merchantId,
    chain_id: chainId,
    address,
    by_key: byKey,
    proven_at: ctx.now(),
  }))
  await ctx.db
    .insertInto("wallet_proofs")
    .values(proven)
    .onConflict(conflict =>
      conflict.columns(["merchant_id", "chain_id", "address"]).doUpdateSet(eb => ({
        by_key: eb.ref("excluded.by_key"),
        proven_at: eb.ref("excluded.proven_at"),
      })),
    )
    .execute()
}

/** Returns the signers of a change: all of `wallets`, in the same order. Uses up the signatures. */
async function signersOf(
  ctx: Context,
  request: Pick<FastifyRequest, "headers">,
  merchantId: string,
  change: WalletChange,
  wallets: SigningWallets,
): Promise<[Signer, ...Signer[]]> {
  const typedOf = typedChange(ctx, merchantId, change)
  const use: NonceUse = { purpose: "wallet-lock", resource: resourceOf(merchantId, wallets, change) }
  const header = request.headers[HEADER.toLowerCase()]
  const [, nonce = "", list = ""] = FORM.exec(`${header ?? ""}`) ?? []
  const answer = async (): Promise<[Signer, ...Signer[]] | string> => {
    if (header === undefined) return "is missing"
    const expiresAt = await nonceExpiry(ctx, nonce, use)
    if (!expiresAt) return "belongs to another change, was already used, or is too old"
    const signatures = list.trim().split(" ") as Hex[]
    // Limited, because each signature may need a call to a node.
    if (signatures.length > wallets.length)
      return `must have at most one signature for each of ${wallets.length} wallets`
    const digestOf = (wallet: Wallet) => hashTypedData(typedOf(wallet, nonce, expiresAt)) as Hash
    const { keys, missing, faults } = await checkSignatures(ctx, wallets, signatures, digestOf)
    // With several wallets and signatures, nobody can tell which signature belongs to which wallet.
    if (wallets.length === 1 && faults[0]) return faults[0]
    if (missing.length > 0) return `is not the signature of ${missing.map(nameOf).join(" and ")} for this change`
    if (!(await takeNonce(ctx, nonce, use))) return "was already used"
    const [first, ...others] = wallets
    const signerOf = (wallet: Wallet): Signer => ({ ...wallet, byKey: keys.has(wallet.address) })
    return [signerOf(first), ...others.map(signerOf)]
  }
  const answered = await answer()
  if (typeof answered !== "string") return answered
  const fresh = await makeNonce(ctx, use)
  const details = wallets.map(wallet => {
    const message = `The signature ${answered}. Sign typedData with ${nameOf(wallet)}, and send the request again.`
    return { path: HEADER, message, typedData: walletJson(typedOf(wallet, fresh.nonce, fresh.expiresAt)) }
  })
  throw new ApiError("WALLET_SIGNATURE_REQUIRED", details)
}

/**
 * Returns the addresses whose key signed, the wallets that did not sign, and the faults of the signatures. A key's
 * signature counts for its address on every network. A contract's signature counts only on the contract's own network,
 * because its address may be another contract elsewhere.
 */
async function checkSignatures(
  ctx: Context,
  wallets: readonly Wallet[],
  signatures: readonly Hex[],
  digestOf: (wallet: Wallet) => Hash,
): Promise<{ keys: Set<Address>; missing: Wallet[]; faults: string[] }> {
  const given = (wallet: Wallet) =>
    signatures.map(signature => ({ from: wallet.address, digest: digestOf(wallet), signature }))
  const keys = new Set(wallets.filter(wallet => given(wallet).some(isSignedByKey)).map(({ address }) => address))
  const isByContract = async (wallet: Wallet): Promise<boolean> => {
    const network = ctx.chain.networks.find(each => each.chainId === wallet.chainId)
    if (!network) return false
    for (const each of given(wallet)) {
      const read = await readSignature(ctx, network, each, "proof")
      if ("by" in read) return true
      faults.push(read.fault)
    }
    return false
  }
  const faults: string[] = []
  const missing: Wallet[] = []
  for (const wallet of wallets) if (!keys.has(wallet.address) && !(await isByContract(wallet))) missing.push(wallet)
  return { keys, missing, faults }
}

type Wallet = Omit<Signer, "byKey">
type SigningWallets = readonly [Wallet, ...Wallet[]]

const nameOf = ({ address, chainId }: Wallet): string => `${checksummed(address)} on ${chainName(chainId)}`

/**
 * The wallets that must sign: the payout address in effect longest, or the first by network order among equally old
 * ones. A console token can add an address on another network immediately. If the token changes an older address, that
 * address counts as the younger one. For `byAll`, the other addresses must therefore sign too, including those on
 * networks that are no longer served.
 */
async function signingWallets(
  ctx: TxContext,
  merchantId: string,
  { byAll }: Pick<ProtectedChange, "byAll">,
): Promise<SigningWallets> {
  const rows = await payoutAddresses(ctx, merchantId)
  const served = ctx.chain.networks.flatMap(({ chainId }) => rows.find(row => row.chain_id === chainId) ?? [])
  const [oldest, ...others] = served.sort((a, b) => a.since.getTime() - b.since.getTime())
  if (!oldest) throw new ApiError("PAYOUT_ADDRESS_REQUIRED")
  const unserved = rows.filter(row => !served.includes(row)).sort((a, b) => a.chain_id - b.chain_id)
  const walletOf = ({ chain_id: chainId, address }: typeof oldest): Wallet => ({ chainId, address })
  return [walletOf(oldest), ...(byAll ? [...others, ...unserved].map(walletOf) : [])]
}

const typedChange =
  (ctx: Context, merchant: string, change: WalletChange) =>
  ({ chainId }: Wallet, nonce: string, expiresAt: Date) => {
    const message = { service: ctx.settings.baseUrl, merchant, ...change, nonce, expiresAt: expiresAt.toISOString() }
    return typedData({ name: "Sluice", version: "1", chainId }, "MerchantChange", MERCHANT_CHANGE, message)
  }

/** What a nonce is for: one change of one merchant, by these wallets. */
function resourceOf(merchantId: string, wallets: SigningWallets, { action, subject, from, to }: WalletChange): string {
  const signers = wallets.map(({ chainId, address }) => [chainId, address])
  const all = JSON.stringify([signers, action, subject, from, to])
  return `${merchantId}:${createHash("sha256").update(all).digest("hex")}`
}
