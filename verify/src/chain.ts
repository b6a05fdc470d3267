/** The chain's side of a receipt: the events of `ReceiptAnchor`, transfers, and deposits' addresses. */
import { concat, fromHex, toHex, utf8 } from "./bytes.ts"
import type { DepositTerms } from "./format.ts"
import { keccak256 } from "./keccak.ts"

/** `ReceiptAnchor` has this address on every network, and only its own code can be there (CREATE2). */
export const RECEIPT_ANCHOR = "0x2d2a6b34e1fd70391d5f119451315e83a223e35f"

const topicOf = (event: string): string => toHex(keccak256(utf8(event)))

export const topics = {
  key: topicOf("Key(address,bytes32)"),
  revoked: topicOf("Revoked(address,bytes32)"),
  anchored: topicOf("Anchored(address,bytes32,bytes32)"),
  transfer: topicOf("Transfer(address,address,uint256)"),
}

const ADDRESS = /^0x[0-9a-f]{40}$/
const WORD = /^0x[0-9a-f]{64}$/

/** A text of this many bytes, padded to a word of 32; throws for other text. */
function word(text: string): Uint8Array {
  const bytes = fromHex(text)
  if (bytes.length > 32) throw new Error("it is longer than a word")
  return concat(new Uint8Array(32 - bytes.length), bytes)
}

/** An address as a topic. */
export const asTopic = (address: string): string => toHex(word(address))

/** The hash of a deposit's salt and terms, from which its factory derives the address. */
export function saltOf({ salt, owner, approver, payeesHash, openAfter }: DepositTerms): string {
  const time = BigInt(openAfter).toString(16)
  const words = [salt, owner, approver, payeesHash, `0x${time.length % 2 === 0 ? "" : "0"}${time}`]
  if (![salt, payeesHash].every(each => WORD.test(each)) || ![owner, approver].every(each => ADDRESS.test(each)))
    throw new Error("the terms are not those of a deposit")
  return toHex(keccak256(concat(...words.map(word))))
}

/**
 * The address of a factory's deposit, by the hash of its terms (EIP-1014 of an ERC-1167 clone). Another factory or
 * other terms give another address.
 */
export function depositAddress(factory: string, terms: string): string {
  if (!ADDRESS.test(factory) || !WORD.test(terms)) throw new Error("the receipt names no factory or no terms")
  const maker = fromHex(factory)
  // The first contract that the factory created: RLP of its address and the nonce 1.
  const implementation = keccak256(concat(fromHex("0xd694"), maker, fromHex("0x01"))).subarray(12)
  const clone = concat(
    fromHex("0x3d602d80600a3d3981f3363d3d373d3d3d363d73"),
    implementation,
    fromHex("0x5af43d82803e903d91602b57fd5bf3"),
  )
  return toHex(keccak256(concat(fromHex("0xff"), maker, fromHex(terms), keccak256(clone))).subarray(12))
}
