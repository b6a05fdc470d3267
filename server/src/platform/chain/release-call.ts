/** Encodes the calls that move money out of a deposit, and the mark that identifies them on the chain. Pure. */
import { concat, decodeFunctionData, encodeAbiParameters, encodeFunctionData, type Hex, keccak256 } from "viem"
import { depositFactoryAbi as abi } from "./abi.ts"
import { type Payee, payeeLists, type TermsArgument } from "./deposit-terms.ts"
import type { GiveBack } from "./give-back.ts"
import type { Address, Hash } from "./hex.ts"

/** Bytes of the payout's id at the end of the calldata. */
const ID_BYTES = 16

/**
 * The gas limit of any call out of a deposit. A first release uses 114,000 gas without a split and 167,000 gas with 50
 * payees, and tokens behind a proxy use more. Unused gas costs nothing, and one simulation is a tenth of the work of an
 * estimate.
 */
export const RELEASE_GAS = 300_000n

const RETURN = [{ type: "string" }, { type: "uint256" }] as const

/** The columns of a deposit that its calls need. */
export interface CalledDeposit {
  salt: Hash
  owner: Address
  approver: Address
  payees_hash: Hash
  open_after_s: bigint
}

/** What moves: `amount` in base units of the token. */
interface Moved {
  token: Address
  recipient: Address
  amount: bigint
}

/** The terms of a row, as the contract's functions take them. */
export const termsOf = ({ owner, approver, payees_hash, open_after_s }: CalledDeposit): TermsArgument => ({
  owner,
  approver,
  payeesHash: payees_hash,
  openAfter: open_after_s,
})

/**
 * Returns the calldata of a release, followed by the payout's id (a UUID). A release pays the deposit's owner, or
 * `payees`, the list to which the deposit's address commits. The contract ignores the id; if the database is lost, the
 * chain still shows what was paid.
 */
export function releaseData(
  payoutId: string,
  deposit: CalledDeposit,
  payees: readonly Payee[],
  { token, recipient, amount }: Moved,
): Hex {
  const lists = payeeLists(recipient === deposit.owner ? [] : payees)
  const args = [deposit.salt, termsOf(deposit), ...lists, token, recipient, amount] as const
  return marked(encodeFunctionData({ abi, functionName: "release", args }), payoutId)
}

/**
 * The deadline of a return that the operator sends. The return needs no deadline, because nobody else could submit it
 * later.
 */
export const NO_DEADLINE = 2n ** 64n - 1n

/**
 * Returns the nonce of a payment's return. `returned` is the number of the payment's earlier returns that moved money.
 * If a return moved nothing, the one that replaces it has the same nonce. So the contract executes only one of them,
 * even if the signature of another is public.
 */
export const returnNonce = (paymentId: string, returned: number): Hash =>
  keccak256(encodeAbiParameters(RETURN, [paymentId, BigInt(returned)])) as Hash

/**
 * Returns the calldata of a give-back, followed by the payout's id. The signature is empty if the factory is the
 * approver.
 */
export function giveBackCall(
  payoutId: string,
  deposit: CalledDeposit,
  { token, to, amount, nonce, deadline }: Omit<GiveBack, "deposit">,
  signature: Hex,
): Hex {
  const args = [deposit.salt, termsOf(deposit), token, to, amount, nonce, deadline, signature] as const
  return marked(encodeFunctionData({ abi, functionName: "giveBack", args }), payoutId)
}

/** Returns what a give-back's calldata contains and no row stores; undefined for any other calldata. */
export function approvalIn(data: Hex): { nonce: Hash; deadline: bigint; signature: Hex } | undefined {
  try {
    const { functionName, args } = decodeFunctionData({ abi, data: withoutId(data) })
    if (functionName !== "giveBack") return undefined
    const [, , , , , nonce, deadline, signature] = args
    return { nonce: nonce as Hash, deadline, signature }
  } catch {
    return undefined
  }
}

/** A call followed by the payout's id, as in every call of a payout. */
export const marked = (call: Hex, payoutId: string): Hex => concat([call, `0x${payoutId.replaceAll("-", "")}`])

/** The id of the payout that this calldata belongs to. */
export function payoutIdIn(data: Hex): string {
  const hex = data.slice(-2 * ID_BYTES)
  return [8, 12, 16, 20, 32].map((end, i, ends) => hex.slice(i === 0 ? 0 : ends[i - 1], end)).join("-")
}

/** The calldata without the id at its end; `0x` if the calldata is too short. */
export const withoutId = (data: Hex): Hex =>
  data.length > 2 + 2 * ID_BYTES ? (data.slice(0, -2 * ID_BYTES) as Hex) : "0x"
