/** Finds senders that nobody can sign for. The money of such senders has no buyer, so it can't buy access. Pure. */
import { type Address, ZERO_ADDRESS } from "./hex.ts"
import type { NetworkInfo } from "./network-facts.ts"

/**
 * Whether an address may belong to a buyer. Minted tokens come from the zero address, including tokens that arrive
 * through the issuer's bridge. A token contract may send tokens that it holds itself.
 */
export const mayBuy = ({ token }: Pick<NetworkInfo, "token">, sender: Address): boolean =>
  sender !== ZERO_ADDRESS && sender !== token.address
