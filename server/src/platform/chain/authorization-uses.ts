/** EIP-3009 `AuthorizationUsed` logs: which authorizations a transaction executed. */
import { toEventSelector } from "viem"
import { type Address, type Hash, parseAddress, parseHash } from "./hex.ts"

/** The first topic of the event that a token emits when an authorization moves money. */
export const AUTHORIZATION_USED = toEventSelector("AuthorizationUsed(address,bytes32)")

/** One authorization that a token executed. */
export interface AuthorizationUse {
  token: Address
  payer: Address
  nonce: Hash
}

/** Returns the authorizations that were used, in the order of the logs. Skips logs of other events and removed logs. */
export function readUses(logs: readonly unknown[]): AuthorizationUse[] {
  return logs.flatMap(log => {
    const { address, topics, removed } = log as { address?: unknown; topics?: unknown; removed?: unknown }
    if (removed === true || !Array.isArray(topics) || topics.length !== 3 || topics[0] !== AUTHORIZATION_USED) return []
    // A topic may be anything, even an object that can't be converted to text.
    const token = parseAddress(address)
    const payer = typeof topics[1] === "string" ? parseAddress(`0x${topics[1].slice(26)}`) : undefined
    const nonce = parseHash(topics[2])
    return token && payer && nonce ? [{ token, payer, nonce }] : []
  })
}
