/** What each service that holds keys must implement. */
import type { Hex } from "viem"
import type { SignatureNumbers } from "../signer.ts"

/** Signs the Keccak-256 hash of bytes; may throw anything. */
export type Sign = (bytes: Hex, signal: AbortSignal) => Promise<SignatureNumbers>
