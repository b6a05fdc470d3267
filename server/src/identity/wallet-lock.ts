/**
 * The wallet lock. While a merchant has it on, changes of who gets the merchant's money need the signature of its
 * payout wallet, so that a stolen console token changes nothing. A request without the signature is refused with the
 * exact EIP-712 data to sign; the same request with the header `Wallet-Signature: <nonce> <signature>` is carried out.
 */
import { createHash } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import type { FastifyRequest } from "fastify"
import { type Hex, hashTypedData, recoverAddress } from "viem"
import { isApproved } from "../chain/contract-wallets.ts"
import { checksummed } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import { lockMerchant } from "../db/lock-merchant.ts"
import { ApiError } from "../errors.ts"
import { payoutAddresses, readTargets, type SettingsChange, type Signer } from "./merchant-settings.ts"
import { makeNonce, type NonceUse, nonceExpiry, takeNonce } from "./nonces.ts"

/** One change, in words for the merchant. All of it is signed, so a signature is valid for this change alone. */
interface WalletChange {
  /** Such as `Change split`. */
  action: string
  /** What is changed: an id, or the name of what is created. */
  subject: string
  /** Who is paid before and after, or what else changes. */
  from: string
  to: string
}

const types = {
  EIP712Domain: [
    { name: "name", type: "string" },
    { name: "version", type: "string" },
    { name: "chainId", type: "uint256" },
  ],
  MerchantChange: [
    { name: "service", type: "string" },
    { name: "merchant", type: "string" },
    { name: "action", type: "string" },
    { name: "subject", type: "string" },
    { name: "from", type: "string" },
    { name: "to", type: "string" },
    { name: "nonce", type: "string" },
    { name: "expiresAt", type: "string" },
  ],
} as const

const HEADER = "Wallet-Signature"
/** A nonce, and a signature of at most 4 KB: all headers of a request have 16 KB. */
const FORM = /^([A-Za-z0-9]{1,64}) (0x(?:[0-9a-fA-F]{2}){1,4096})$/

/** The part of a request that the lock protects. */
interface ProtectedChange {
  words: WalletChange
  /** Whether it needs the signature even with the lock off. */
  always?: boolean
}

/** Reads the protected part of a request from the current state; undefined where nothing is protected. */
type ReadChange = (ctx: TxContext) => Promise<ProtectedChange | undefined>

export interface Approval {
  /** Who signed; undefined where no signature was needed. */
  signer: Signer | undefined
  /**
   * Throws `WALLET_SIGNATURE_REQUIRED` where the change needs an approval that it did not need when it was requested:
   * the lock was switched on, or the thing to change differs from what was signed. Call it first in the transaction of
   * the change: it locks the merchant's row, as every such change does.
   */
  hold(ctx: TxContext): Promise<void>
}

/** Whether the merchant has the lock on. */
const isLocked = async (ctx: TxContext, merchantId: string): Promise<boolean> =>
  (await ctx.db.selectFrom("merchants").select("wallet_lock").where("id", "=", merchantId).executeTakeFirstOrThrow())
    .wallet_lock

/**
 * Makes sure that the payout wallet approves what `read` finds protected, and uses the signature up. Needed with the
 * lock on, or where `always`. Throws `WALLET_SIGNATURE_REQUIRED` with the data to sign, `PAYOUT_ADDRESS_REQUIRED`
 * without a wallet, `CHAIN_UNAVAILABLE`. It asks nodes about contract wallets, so call it outside of any transaction,
 * after all other checks; call `hold` inside the transaction.
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
  const signer =
    checked && (await isNeeded(ctx, checked)) ? await signerOf(ctx, request, merchantId, checked.words) : undefined
  const hold = async (ctx: TxContext) => {
    await lockMerchant(ctx.db, merchantId)
    const present = await read(ctx)
    if (!signer && !(await isNeeded(ctx, present))) return
    const same = signer && isDeepStrictEqual(present, checked) && (await isStillWallet(ctx, merchantId, signer))
    if (!same)
      throw new ApiError(
        "WALLET_SIGNATURE_REQUIRED",
        undefined,
        "Another request changed the settings at the same time. Send the request again.",
      )
  }
  return { signer, hold }
}

/** Who signed a change; uses the signature up. */
async function signerOf(
  ctx: Context,
  request: Pick<FastifyRequest, "headers">,
  merchantId: string,
  change: WalletChange,
): Promise<Signer> {
  const wallet = await lockingWallet(ctx, merchantId)
  const typedOf = typedChange(ctx, merchantId, wallet, change)
  const use: NonceUse = { purpose: "wallet-lock", resource: resourceOf(merchantId, wallet, change) }
  const header = request.headers[HEADER.toLowerCase()]
  const [, nonce = "", signature = "0x"] = FORM.exec(`${header ?? ""}`) ?? []
  const answer = async (): Promise<Signer | string> => {
    if (header === undefined) return "is missing"
    const expiresAt = await nonceExpiry(ctx, nonce, use)
    if (!expiresAt) return "does not belong to this change, was already used, or is too old"
    const digest = hashTypedData({ ...typedOf(nonce, expiresAt), types: { MerchantChange: types.MerchantChange } })
    const byKey = await isByKey(wallet, digest, signature as Hex)
    const network = networkOf(ctx.chain, wallet.network.chainId)
    if (!byKey && !(await isApproved(ctx, network, wallet.address, digest, signature as Hex)))
      return `is not the signature of ${checksummed(wallet.address)} for this change`
    return (await takeNonce(ctx, nonce, use)) ? { ...wallet, byKey } : "was already used"
  }
  const answered = await answer()
  if (typeof answered !== "string") return answered
  const fresh = await makeNonce(ctx, use)
  const typedData = typedOf(fresh.nonce, fresh.expiresAt)
  const who = `${checksummed(wallet.address)} on ${wallet.network.name}`
  const message = `The signature ${answered}. Sign typedData with ${who}, and send the request again.`
  throw new ApiError("WALLET_SIGNATURE_REQUIRED", [{ path: HEADER, message, typedData }])
}

/**
 * The part of a change that the payout wallet has to approve while the wallet lock is on, in words; undefined where
 * there is none. Throws `VALIDATION_ERROR` where an address is not acceptable. Switching the lock on or off always
 * needs the signature: otherwise a lock whose wallet can't sign, such as an exchange's, would stay on for ever.
 */
export async function protectedPart(
  ctx: TxContext,
  merchantId: string,
  change: SettingsChange,
): Promise<ProtectedChange | undefined> {
  const targets = await readTargets(ctx, change.payoutAddresses)
  const [present, locked] = [await payoutAddresses(ctx, merchantId), await isLocked(ctx, merchantId)]
  const moved = targets.flatMap(({ network, address }) => {
    const before = present.find(row => row.chain_id === network.chainId)
    if (before?.address === address && !before.pending_address) return []
    const words = (text: string) => `payout address on ${network.name}: ${text}`
    return [{ from: words(before ? checksummed(before.address) : "none"), to: words(checksummed(address)) }]
  })
  const switched = change.walletLock !== undefined && change.walletLock !== locked
  const lock = (on: boolean) => `wallet lock: ${on ? "on" : "off"}`
  const parts = [...moved, ...(switched ? [{ from: lock(locked), to: lock(!locked) }] : [])]
  if (parts.length === 0) return undefined
  const joined = (side: "from" | "to") => parts.map(part => part[side]).join("; ")
  const words = { action: "Change settings", subject: "settings", from: joined("from"), to: joined("to") }
  return { words, always: switched }
}

type Wallet = Omit<Signer, "byKey">

/**
 * The wallet that signs: the payout address that has been in effect longest; of several, the first in the order of
 * networks. A token alone can add an address on a further network at once, so a recent address must not speak for the
 * others.
 */
async function lockingWallet(ctx: TxContext, merchantId: string): Promise<Wallet> {
  const rows = await payoutAddresses(ctx, merchantId)
  const known = ctx.chain.networks.flatMap(network => {
    const row = rows.find(each => each.chain_id === network.chainId)
    return row ? [{ network, address: row.address, since: row.since.getTime() }] : []
  })
  const [oldest] = known.sort((a, b) => a.since - b.since)
  if (!oldest) throw new ApiError("PAYOUT_ADDRESS_REQUIRED")
  return { network: oldest.network, address: oldest.address }
}

async function isStillWallet(ctx: TxContext, merchantId: string, { network, address }: Signer): Promise<boolean> {
  const present = await lockingWallet(ctx, merchantId)
  return present.address === address && present.network.chainId === network.chainId
}

const typedChange =
  (ctx: Context, merchant: string, { network }: Wallet, change: WalletChange) =>
  (nonce: string, expiresAt: Date) => ({
    types,
    primaryType: "MerchantChange" as const,
    domain: { name: "Sluice", version: "1", chainId: network.chainId },
    message: { service: ctx.settings.baseUrl, merchant, ...change, nonce, expiresAt: expiresAt.toISOString() },
  })

/** What a nonce is for: one change of one merchant, by one wallet. */
function resourceOf(
  merchantId: string,
  { network, address }: Wallet,
  { action, subject, from, to }: WalletChange,
): string {
  const all = JSON.stringify([network.chainId, address, action, subject, from, to])
  return `${merchantId}:${createHash("sha256").update(all).digest("hex")}`
}

async function isByKey({ address }: Wallet, hash: Hex, signature: Hex): Promise<boolean> {
  const recovered = await recoverAddress({ hash, signature }).catch(() => undefined)
  return recovered?.toLowerCase() === address
}
