/** What an approver signs to send money out of a deposit back to a payer (EIP-712). Pure. */
import type { Hex } from "viem"
import type { Address } from "./hex.ts"
import { typedData } from "./typed-data.ts"

/** Money that is to leave a deposit, once, until `deadline` (Unix seconds). */
export interface GiveBack {
  token: Address
  to: Address
  /** Base units of the token. */
  amount: bigint
  deposit: Address
  /** 32 bytes; each counts once for a deposit. */
  nonce: Hex
  deadline: bigint
}

/** The fields in the order that wallets show them. */
const GIVE_BACK = [
  { name: "token", type: "address" },
  { name: "to", type: "address" },
  { name: "amount", type: "uint256" },
  { name: "deposit", type: "address" },
  { name: "nonce", type: "bytes32" },
  { name: "deadline", type: "uint256" },
] as const

/**
 * The typed data that the approver of a deposit signs; `factory` is the deposit's own. The signature holds on this chain and
 * with this factory alone.
 */
export const giveBackData = (chainId: number, factory: Hex, message: GiveBack) =>
  typedData({ name: "Sluice", version: "2", chainId, verifyingContract: factory }, "GiveBack", GIVE_BACK, {
    ...message,
  })
