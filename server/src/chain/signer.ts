/** Signing transactions. A wallet's key is reached only through this, so that it may live elsewhere (a KMS). */
import type { Hex } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import type { Address } from "./hex.ts"

/** All that is signed; an EIP-1559 transaction, amounts in wei. */
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

/** A wallet that signs. It holds no key that could be printed; what it signs is checked by whoever asks. */
export interface Signer {
  address: Address
  /** The signed bytes, ready to be sent. Called inside a database transaction: it must not wait for a network. */
  sign(transaction: UnsignedTransaction): Promise<Hex>
}

/** The signer of a private key (0x and 64 digits); the library's error for what is none. */
export function localSigner(key: Hex): Signer {
  const account = privateKeyToAccount(key)
  return {
    address: account.address.toLowerCase() as Address,
    sign: transaction => account.signTransaction({ type: "eip1559", ...transaction }),
  }
}
