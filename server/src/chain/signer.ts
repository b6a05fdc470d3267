/**
 * Signs transactions. Code reaches a wallet's key only through this interface, so that the key may be kept elsewhere (a
 * KMS).
 */
import type { Hex } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import type { Address } from "./hex.ts"

/** Everything that is signed; an EIP-1559 transaction, amounts in wei. */
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

/** A wallet that signs. It exposes no key that could be printed; the caller checks what it signed. */
export interface Signer {
  address: Address
  /** The signed bytes, ready to be sent. Called inside a database transaction, so it must not wait for a network. */
  sign(transaction: UnsignedTransaction): Promise<Hex>
}

/** The signer of a private key (0x and 64 digits); throws the library's error for an invalid key. */
export function localSigner(key: Hex): Signer {
  const account = privateKeyToAccount(key)
  return {
    address: account.address.toLowerCase() as Address,
    sign: transaction => account.signTransaction({ type: "eip1559", ...transaction }),
  }
}
