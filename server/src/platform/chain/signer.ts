/**
 * Signs transactions. Code reaches a wallet's key only through this interface, so the key may be kept outside the
 * process (`signers/`). A signer is not trusted: `signTransaction` checks its answer against the bytes and the wallet.
 */
// I/O: waits for the given signer, which may be on another machine.
import { type Hex, hexToBigInt, numberToHex, serializeSignature, serializeTransaction, slice } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { type Address, checksummed, type Hash, keccak } from "./hex.ts"
import { recoverSigner } from "./recover.ts"

/** The transaction to sign: EIP-1559, amounts in wei. */
export interface UnsignedTransaction {
  chainId: number
  nonce: number
  to: Address
  data: Hex
  value: bigint
  gas: bigint
  maxFeePerGas: bigint
  maxPriorityFeePerGas: bigint
}

/** The two numbers of an ECDSA signature as a signer returned them: not checked, and s may be the high one. */
export interface SignatureNumbers {
  r: bigint
  s: bigint
  /**
   * The bit that recovers the wallet, if the signer reports it. This bit is tried first, because a recovery takes a
   * quarter of a millisecond.
   */
  yParity?: 0 | 1
}

/**
 * A wallet that signs. A signer exposes no key that could be printed; {@link signTransaction} checks what it signed.
 */
export interface Signer {
  address: Address
  /** The kind of key outside this process, such as "aws-kms"; undefined for a key in this process. */
  remote?: string
  /**
   * Signs the Keccak-256 hash of bytes; two calls may return two signatures, both valid. Throws a {@link SignerError}
   * if there is no signature. Never call it inside a database transaction, because it may wait for a network.
   */
  sign(bytes: Hex, signal: AbortSignal): Promise<SignatureNumbers>
}

/**
 * A signer gave no valid signature of its wallet. The message is a sentence without a subject ("did not answer …"),
 * without secrets.
 */
export class SignerError extends Error {
  /**
   * Whether the signer returned something other than its wallet's signature: it, or a proxy in front of it, is
   * misconfigured or hostile.
   */
  isWrong: boolean

  constructor(message: string, { isWrong = false, ...options }: ErrorOptions & { isWrong?: boolean } = {}) {
    super(message, options)
    this.isWrong = isWrong
  }
}

/** The signer of a private key (0x and 64 digits); throws the library's error for an invalid key. */
export function localSigner(key: Hex): Signer {
  const account = privateKeyToAccount(key)
  return {
    address: account.address.toLowerCase() as Address,
    sign: async bytes => {
      const signature = await account.sign({ hash: keccak(bytes) })
      const r = hexToBigInt(slice(signature, 0, 32))
      const s = hexToBigInt(slice(signature, 32, 64))
      return { r, s, yParity: signature.endsWith("1c") ? 1 : 0 }
    },
  }
}

const bytesOf = (transaction: UnsignedTransaction): Hex => serializeTransaction({ type: "eip1559", ...transaction })

/** Returns the hash that is signed. The hash covers what the transaction does, but not the signature. */
export const unsignedHash = (transaction: UnsignedTransaction): Hash => keccak(bytesOf(transaction))

/**
 * Has a transaction signed, and returns its bytes and its hash. Throws a {@link SignerError} if the answer is not the
 * wallet's signature of exactly these bytes.
 */
export async function signTransaction(
  signer: Signer,
  transaction: UnsignedTransaction,
  signal: AbortSignal,
): Promise<{ raw: Hex; hash: Hash }> {
  const bytes = bytesOf(transaction)
  const given = await signer.sign(bytes, signal)
  for (const { signature, wallet } of recoveries(keccak(bytes), given)) {
    if (wallet !== signer.address) continue
    const raw = serializeTransaction({ type: "eip1559", ...transaction }, signature)
    return { raw, hash: keccak(raw) }
  }
  throw new SignerError(
    `answered with something that is not a signature of the wallet ${checksummed(signer.address)}`,
    {
      isWrong: true,
    },
  )
}

/**
 * Returns the wallets that may have made a signature of bytes: usually two, because a signature alone does not identify
 * one.
 */
export const possibleWallets = (bytes: Hex, given: SignatureNumbers): Address[] => [
  ...recoveries(keccak(bytes), given).map(({ wallet }) => wallet),
]

interface ParitySignature {
  r: Hex
  s: Hex
  yParity: 0 | 1
}

/** The order of the curve secp256k1. */
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

/**
 * A signature in the form that nodes accept, with the lower s, once for each of the two bits. Each bit recovers a
 * different wallet from it.
 */
function* recoveries(hash: Hex, given: SignatureNumbers): Generator<{ signature: ParitySignature; wallet: Address }> {
  if (![given.r, given.s].every(number => number > 0n && number < ORDER)) return
  const lower = given.s > ORDER / 2n ? ORDER - given.s : given.s
  const r = numberToHex(given.r, { size: 32 })
  const s = numberToHex(lower, { size: 32 })
  for (const yParity of given.yParity === 1 ? ([1, 0] as const) : ([0, 1] as const)) {
    const signature = { r, s, yParity }
    const wallet = recoverSigner(hash, serializeSignature(signature))
    if (wallet) yield { signature, wallet }
  }
}
