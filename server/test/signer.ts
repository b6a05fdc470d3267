/** Signers of accounts whose keys a test has. */
import { type Hex, hexToBigInt, keccak256, slice } from "viem"
import type { Address } from "../src/platform/chain/hex.ts"
import type { Signer } from "../src/platform/chain/signer.ts"

interface Account {
  address: Hex
  sign?: (hash: { hash: Hex }) => Promise<Hex>
}

/** The signer of an account, as `localSigner` makes it of a key. */
export const signerOf = (account: Account): Signer => ({
  address: account.address.toLowerCase() as Address,
  sign: async bytes => {
    const signature = (await account.sign?.({ hash: keccak256(bytes) })) ?? "0x"
    const r = hexToBigInt(slice(signature, 0, 32))
    const s = hexToBigInt(slice(signature, 32, 64))
    return { r, s, yParity: signature.endsWith("1c") ? 1 : 0 }
  },
})
