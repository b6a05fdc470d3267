/**
 * A key behind a Web3Signer, used through its API for Ethereum keys. A Web3Signer identifies a key by its public key,
 * takes the bytes of a transaction, and hashes them itself. The API has no credentials, so a private network, or TLS
 * with client certificates, must protect it.
 */
// I/O: sends requests to the Web3Signer.
import { type Hex, hexToBigInt, keccak256, slice } from "viem"
import { type Address, checksummed, parseAddress } from "../hex.ts"
import { SignerError } from "../signer.ts"
import { exchange } from "./exchange.ts"
import type { Sign } from "./sign.ts"

const SIGNATURE = /^0x[0-9a-f]{130}$/i

/** Signs with the key of a wallet that the Web3Signer at `url` must have. */
export function web3Signer(url: string, wallet: Address): Sign {
  let known: Hex | undefined
  return async (bytes, signal) => {
    known ??= (await listKeys(url, signal)).find(each => each.wallet === wallet)?.key
    if (!known) throw new SignerError(`has no key of the wallet ${checksummed(wallet)}`)
    const text = await exchange(`${url}/api/v1/eth1/sign/${known}`, { body: { data: bytes } }, signal).catch(error => {
      // The signer's keys may have changed since then.
      known = undefined
      throw error
    })
    const signature = text.trim().replace(/^"|"$/g, "") as Hex
    if (!SIGNATURE.test(signature))
      throw new SignerError("answered with something that is not a signature", { isWrong: true })
    return { r: hexToBigInt(slice(signature, 0, 32)), s: hexToBigInt(slice(signature, 32, 64)) }
  }
}

/** Returns the keys of a Web3Signer, and their wallets; anything that is not a key of this curve is skipped. */
export async function listKeys(url: string, signal: AbortSignal): Promise<{ key: Hex; wallet: Address }[]> {
  const text = await exchange(`${url}/api/v1/eth1/publicKeys`, {}, signal)
  let keys: unknown
  try {
    keys = JSON.parse(text)
  } catch {
    // The error below says what is wrong.
  }
  if (!Array.isArray(keys)) throw new SignerError("answered with something that is not a list of keys")
  return keys.flatMap(key => {
    // With or without the prefix byte of an uncompressed point.
    const point = /^0x(?:04)?([0-9a-f]{128})$/i.exec(String(key))?.[1]
    const wallet = point && parseAddress(`0x${keccak256(`0x${point}`).slice(-40)}`)
    return wallet ? [{ key: key as Hex, wallet }] : []
  })
}
