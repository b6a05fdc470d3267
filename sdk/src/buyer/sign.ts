/** Signs transfers (EIP-3009) with a viem account or a wallet (EIP-1193). */
import type { LocalAccount } from "viem"

/** A browser's wallet, or any other EIP-1193 provider, and the address that pays. */
interface ProviderWallet {
  provider: { request(args: { method: string; params?: unknown }): Promise<unknown> }
  address: `0x${string}`
}

export type Wallet = Pick<LocalAccount, "address" | "signTypedData"> | ProviderWallet

export interface Authorization {
  from: `0x${string}`
  to: `0x${string}`
  /** Base units. */
  value: string
  validAfter: string
  validBefore: string
  nonce: `0x${string}`
}

interface Domain {
  name: string
  version: string
  chainId: number
  verifyingContract: `0x${string}`
}

export interface Payer {
  address: `0x${string}`
  sign(authorization: Authorization, domain: Domain): Promise<`0x${string}`>
}

/** The fields of an authorization (EIP-3009), as EIP-712 names their types. */
export const authorizationFields = [
  ["from", "address"],
  ["to", "address"],
  ["value", "uint256"],
  ["validAfter", "uint256"],
  ["validBefore", "uint256"],
  ["nonce", "bytes32"],
].map(([name = "", type = ""]) => ({ name, type }))

/** The fields of a token's domain (EIP-712). */
export const domainFields = [
  ["name", "string"],
  ["version", "string"],
  ["chainId", "uint256"],
  ["verifyingContract", "address"],
].map(([name = "", type = ""]) => ({ name, type }))

/** Creates a signer from either kind of wallet. */
export function signerOf(wallet: Wallet): Payer {
  const primaryType = "TransferWithAuthorization"
  if (!("provider" in wallet))
    return {
      address: wallet.address,
      sign: ({ value, validAfter, validBefore, ...rest }, domain) =>
        wallet.signTypedData({
          domain,
          types: { TransferWithAuthorization: authorizationFields },
          primaryType,
          message: { ...rest, value: BigInt(value), validAfter: BigInt(validAfter), validBefore: BigInt(validBefore) },
        } as never),
    }
  return {
    address: wallet.address,
    sign: async (message, domain) => {
      const types = { EIP712Domain: domainFields, TransferWithAuthorization: authorizationFields }
      const params = [wallet.address, JSON.stringify({ domain, types, primaryType, message })]
      return (await wallet.provider.request({ method: "eth_signTypedData_v4", params })) as `0x${string}`
    },
  }
}
