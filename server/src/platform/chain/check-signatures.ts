/**
 * Determines who made a signature, in whatever form the wallet wrote it. All routes use this file. A key's signature
 * has 65 bytes, the last of which is 0, 1, 27 or 28, or the 64 bytes of EIP-2098. A contract's signature (ERC-1271) has
 * any number of bytes, even none. Such a signature may be wrapped with the call that deploys the contract (ERC-6492).
 */
import { concat, decodeAbiParameters, type Hex, hexToNumber, size, slice } from "viem"
import type { Context } from "../context.ts"
import { askWallet } from "./ask-contract-wallets.ts"
import { type Address, checksummed, type Hash } from "./hex.ts"
import type { Network } from "./networks.ts"
import { recoverSigner } from "./recover.ts"

/** Who made a signature: a key, or a contract (ERC-1271). */
export type SignedBy = "key" | "contract"

/** A signature as it was sent, and the hash that it signs. */
export interface GivenSignature {
  from: Address
  digest: Hash
  signature: Hex
}

/** A good signature, in the bytes that contracts accept: those of a key are r, s, and v as 27 or 28. */
export interface GoodSignature {
  by: SignedBy
  signature: Hex
}

/**
 * The use of a signature. A `proof` is only verified here, so it may come from a wallet that is not deployed. A
 * `transaction` contains the signature, so the wallet's contract must exist.
 */
type Use = "proof" | "transaction"

/** Half the order of secp256k1: of the two forms of a signature, tokens accept the lower one. */
const HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n
/** The last bytes of a signature that is wrapped with the deployment of its wallet (ERC-6492). */
const WRAPPED = "6492".repeat(16)
const WRAPPER = [{ type: "address" }, { type: "bytes" }, { type: "bytes" }] as const
const V_OF_BYTE: Partial<Record<number, Hex>> = { 0: "0x1b", 1: "0x1c", 27: "0x1b", 28: "0x1c" }
/** In the second half of an EIP-2098 signature, the highest bit is the parity, and the rest is s. */
const PARITY_BIT = 1n << 255n

/**
 * Returns who made `from`'s signature of a hash, or why it is invalid, in words that follow "the signature". Throws
 * `CHAIN_UNAVAILABLE` when a contract wallet can't be queried. The result for a `transaction` is never wrapped:
 * contracts that unwrap would make any call that the wrapper names.
 */
export async function readSignature(
  ctx: Pick<Context, "signal">,
  network: Network,
  given: GivenSignature,
  use: Use,
): Promise<GoodSignature | { fault: string }> {
  const { from, digest } = given
  const read = unwrapped(given.signature)
  if ("fault" in read) return read
  const { signature, wrapper } = read
  const own = inKeyForm(given, signature)
  if (own) {
    if (use === "proof" || BigInt(slice(own, 32, 64)) <= HALF_ORDER) return { by: "key", signature: own }
    return { fault: "has a form that tokens refuse: s must be in the lower half of the curve's order" }
  }
  const counterfactual = use === "proof" ? wrapper : undefined
  const asked = { address: from, hash: digest, signature, isWrapped: wrapper !== undefined, counterfactual }
  const verdict = await askWallet(ctx, network, asked)
  return verdict === "accepted" ? { by: "contract", signature } : { fault: faultOf(from, signature, verdict) }
}

/** Whether the key of `from` made a signature, whatever its form. It queries no node. */
export const isSignedByKey = (given: GivenSignature): boolean => {
  const read = unwrapped(given.signature)
  return "signature" in read && inKeyForm(given, read.signature) !== undefined
}

/** Removes the wrapper of ERC-6492, and keeps the whole as `wrapper`. */
function unwrapped(given: Hex): { signature: Hex; wrapper: Hex | undefined } | { fault: string } {
  const whole = given.toLowerCase() as Hex
  if (!whole.endsWith(WRAPPED)) return { signature: whole, wrapper: undefined }
  try {
    const [, , signature] = decodeAbiParameters(WRAPPER, slice(whole, 0, -32))
    if (signature.endsWith(WRAPPED)) return { fault: "is wrapped twice (ERC-6492): wrap it once, or not at all" }
    return { signature, wrapper: whole }
  } catch {
    return {
      fault: "has the ending of ERC-6492, but does not contain a factory, a call to it and a signature",
    }
  }
}

/** The signature in the form that contracts accept, if the key of `from` made it. */
function inKeyForm({ from, digest }: GivenSignature, signature: Hex): Hex | undefined {
  const written = withV(signature)
  return written !== undefined && recoverSigner(digest, written) === from ? written : undefined
}

/** r, s, and v as 27 or 28; undefined for bytes that no key writes. */
function withV(signature: Hex): Hex | undefined {
  const bytes = size(signature)
  if (bytes === 65) {
    const v = V_OF_BYTE[lastByte(signature)]
    return v && concat([slice(signature, 0, 64), v])
  }
  if (bytes !== 64) return undefined
  const second = BigInt(slice(signature, 32))
  const s = `0x${(second % PARITY_BIT).toString(16).padStart(64, "0")}` as const
  return concat([slice(signature, 0, 32), s, second < PARITY_BIT ? "0x1b" : "0x1c"])
}

const lastByte = (signature: Hex): number => hexToNumber(slice(signature, -1))

function faultOf(from: Address, signature: Hex, verdict: "refused" | "undeployed"): string {
  const name = checksummed(from)
  if (verdict === "undeployed")
    return `is of ${name}, which is not deployed yet (ERC-6492). Its contract must accept this on chain: deploy the wallet first, or use another wallet`
  const words = `is not the signature of ${name} for this`
  const bytes = size(signature)
  if (bytes === 0)
    return `${words}: it is empty, and there is no contract wallet that approved this on chain (ERC-1271)`
  if (bytes !== 64 && bytes !== 65)
    return `${words}: it has ${bytes} bytes instead of 64 or 65, and there is no contract wallet that accepts it (ERC-1271)`
  if (bytes === 65 && !(lastByte(signature) in V_OF_BYTE))
    return `${words}: it ends in ${lastByte(signature)} instead of 0, 1, 27 or 28, and there is no contract wallet that accepts it (ERC-1271)`
  return `${words}: another key made it, or it signs something else, and there is no contract wallet that accepts it (ERC-1271)`
}
