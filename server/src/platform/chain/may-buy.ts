/** Which senders nobody can sign for. Money that they send has no buyer, so it can't buy access. Pure. */
import { type Address, ZERO_ADDRESS } from "./hex.ts"
import type { NetworkInfo } from "./network-facts.ts"

/**
 * Whether an address may be somebody's. What is minted comes from zero, as what a bridge of the issuer brings does. A
 * token may send what it holds itself.
 */
export const mayBuy = ({ token }: Pick<NetworkInfo, "token">, sender: Address): boolean =>
  sender !== ZERO_ADDRESS && sender !== token.address
