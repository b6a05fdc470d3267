/** Typed data that wallets sign (EIP-712). Pure. */
import type { TypedDataDomain, TypedDataParameter } from "viem"

/** The fields of a domain in the order of the standard. */
const DOMAIN = [
  { name: "name", type: "string" },
  { name: "version", type: "string" },
  { name: "chainId", type: "uint256" },
  { name: "verifyingContract", type: "address" },
] as const

/** Returns one struct to sign in a domain; `fields` are in the order in which they are hashed and shown by wallets. */
export const typedData = <
  const Name extends string,
  const Fields extends readonly TypedDataParameter[],
  Message extends Record<Fields[number]["name"], unknown>,
>(
  domain: TypedDataDomain,
  primaryType: Name,
  fields: Fields,
  message: Message,
) => ({ domain, types: { [primaryType]: fields } as Record<Name, Fields>, primaryType, message })

/**
 * Typed data as JSON for a wallet (`eth_signTypedData_v4`): with the domain's own fields, and numbers as decimal text.
 */
export function walletJson<T extends ReturnType<typeof typedData>>({ domain, types, primaryType, message }: T) {
  const texts = Object.entries(message).map(([name, value]) => [name, typeof value === "bigint" ? `${value}` : value])
  return {
    domain,
    types: { EIP712Domain: DOMAIN.filter(({ name }) => name in domain), ...types },
    primaryType,
    message: Object.fromEntries(texts) as Record<string, unknown>,
  }
}
