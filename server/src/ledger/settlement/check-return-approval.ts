/**
 * Handles returns that a merchant's wallet must approve: what the wallet signs, and whether it has signed. The paid
 * address names the wallet, so nobody else can send the money back, not even the service.
 */
import { type Hex, hashTypedData } from "viem"
import { readSignature } from "../../platform/chain/check-signatures.ts"
import { type GiveBack, giveBackData } from "../../platform/chain/give-back.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { giveBackCall, RELEASE_GAS, returnNonce } from "../../platform/chain/release-call.ts"
import { walletJson } from "../../platform/chain/typed-data.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { movedReturns } from "../payouts/make-returns.ts"
import { failureOfReturn } from "../payouts/try-return.ts"

/** How long a requested approval is valid, in seconds. */
const APPROVED_FOR_S = 7 * 86_400
/**
 * The least time, in seconds, for which an approval must still be valid, because a payout may wait for its turn and be
 * sent too late.
 */
const MIN_LEFT_S = 600
/**
 * The most time, in seconds, for which an approval may still be valid, because a forgotten signature must not stay
 * usable for longer.
 */
const MAX_LEFT_S = 31 * 86_400

/** A wallet's signature. `deadline` is in Unix seconds. */
export interface ReturnApproval {
  deadline: number
  signature: Hex
}

/** An approval whose signature was verified for exactly this digest. */
export type CheckedApproval = ReturnApproval & { digest: Hash }

/**
 * Whether a wallet has to approve the return of a payment. The wallet's signature then also satisfies the wallet lock.
 */
export async function isForWallet(ctx: TxContext, { deposit_id }: Row<"payments">): Promise<boolean> {
  const deposits = ctx.db.selectFrom("deposits").select("id").where("id", "=", deposit_id)
  return (await deposits.whereRef("approver", "<>", "factory").executeTakeFirst()) !== undefined
}

/** The wallet that has to approve a return, and the data to sign. */
interface RequiredApproval {
  approver: Address
  deposit: Row<"deposits">
  message: GiveBack
  data: ReturnType<typeof giveBackData>
}

/**
 * Returns what the wallet has to sign to return a payment to an address. Undefined if the service can return the
 * payment without a signature.
 */
async function askedFor(
  ctx: TxContext,
  payment: Row<"payments">,
  to: Address,
  deadline: number,
): Promise<RequiredApproval | undefined> {
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("id", "=", payment.deposit_id)
    .executeTakeFirstOrThrow()
  const { approver, factory, address, older_factory: isOlder } = deposit
  if (approver === factory) return undefined
  if (isOlder)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "This receiving address belongs to an earlier version, and this version can't return money from it.",
    )
  const { token, amount, id, chain_id } = payment
  const nonce = returnNonce(id, await movedReturns(ctx, id))
  const message = { token, to, amount, deposit: address, nonce, deadline: BigInt(deadline) }
  return { approver, deposit, message, data: giveBackData(chain_id, factory, message) }
}

/** Stands for the id of a payout that is not written yet. */
const NO_ID = "00000000-0000-0000-0000-000000000000"
/** The selector of the contract's `BadSignature()`, because some nodes report only the data of the error. */
const BAD_SIGNATURE = "0x5cd5d233"

/**
 * Refuses what the contract would refuse. Otherwise the payment would count as returned, although its payout can never
 * be sent.
 */
async function assertSucceeds(
  ctx: Context,
  chainId: number,
  { deposit, message }: RequiredApproval,
  signature: Hex,
): Promise<void> {
  const data = giveBackCall(NO_ID, deposit, message, signature)
  const error = await failureOfReturn(ctx, networkOf(ctx.chain, chainId), { factory: deposit.factory, data })
  if (error === undefined) return
  if (error.includes(BAD_SIGNATURE) || error.includes("BadSignature"))
    throw invalid(
      "approval.signature",
      `is refused by the wallet's own contract when the return is sent: the contract must accept signatures by ERC-1271, with less than ${RELEASE_GAS} gas for the whole return`,
    )
  throw new ApiError(
    "INVALID_OPERATION",
    undefined,
    "This return would fail on chain, so it was not sent. The token refuses the recipient or is paused, or the wallet's contract does not accept the signature (ERC-1271). Try again later, or return the money to another address.",
  )
}

const inSeconds = (ctx: TxContext): number => Math.floor(ctx.now().getTime() / 1_000)

const digestOf = ({ data }: RequiredApproval): Hash => hashTypedData(data) as Hash

/**
 * Checks a wallet's approval to return a payment to an address. Returns undefined if no approval is needed. Throws
 * `VALIDATION_ERROR` for an invalid deadline or signature, and `INVALID_OPERATION` if the return would fail on chain.
 * Throws `CHAIN_UNAVAILABLE` if a contract wallet can't be queried. This function may call nodes, so call it outside
 * any transaction. {@link assertApproved} compares the approval inside a transaction.
 */
export async function checkApproval(
  ctx: Context,
  payment: Row<"payments">,
  to: Address | undefined,
  approval: ReturnApproval | undefined,
): Promise<CheckedApproval | undefined> {
  if (!approval || !to || payment.deposit_id === null) return undefined
  const asked = await askedFor(ctx, payment, to, approval.deadline)
  if (!asked) return undefined
  const left = approval.deadline - inSeconds(ctx)
  if (left < MIN_LEFT_S || left > MAX_LEFT_S)
    throw invalid("approval.deadline", "must be between ten minutes and 31 days from now, in Unix seconds")
  const digest = digestOf(asked)
  const { approver: from } = asked
  const signer = { from, digest, signature: approval.signature }
  const signed = await readSignature(ctx, networkOf(ctx.chain, payment.chain_id), signer, "transaction")
  if ("fault" in signed) throw invalid("approval.signature", signed.fault)
  await assertSucceeds(ctx, payment.chain_id, asked, signed.signature)
  return { deadline: approval.deadline, signature: signed.signature, digest }
}

/**
 * Throws `RETURN_APPROVAL_REQUIRED` with the data to sign if the address's wallet has not approved this return. Call
 * this in the transaction that makes the return.
 */
export async function assertApproved(
  ctx: TxContext,
  payment: Row<"payments">,
  to: Address,
  approval: CheckedApproval | undefined,
): Promise<void> {
  const deadline = approval?.deadline ?? inSeconds(ctx) + APPROVED_FOR_S
  const asked = await askedFor(ctx, payment, to, deadline)
  if (!asked || (approval && approval.digest === digestOf(asked))) return
  const message = `Sign typedData with ${checksummed(asked.approver)}, and send the request again with \`approval\`: the deadline and the signature.`
  throw new ApiError("RETURN_APPROVAL_REQUIRED", [{ path: "approval", message, typedData: walletJson(asked.data) }])
}
