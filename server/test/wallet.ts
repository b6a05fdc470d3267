/** Wallets of tests: what a wallet signs for a purpose, with any field changed. */
import type { PrivateKeyAccount } from "viem/accounts"
import { createSiweMessage } from "viem/siwe"

/** A wallet's signed message, as `POST /api/auth/verify` accepts it. */
export interface SignedMessage {
  message: string
  signature: `0x${string}`
}

export type Fields = Partial<Parameters<typeof createSiweMessage>[0]>

/** The address under which tests' services believe they are reached. */
export const BASE_URL = "http://127.0.0.1:4000"

/** The fields of a valid sign-in message, except its nonce. */
export const signInFields = {
  domain: "127.0.0.1:4000",
  uri: `${BASE_URL}/api/auth/verify`,
  chainId: 84532,
  resources: ["urn:sluice:sign-in"],
} satisfies Fields

/** The fields of a valid message for a paywall, except its nonce. */
export const accessFields = (paywall: string): Fields => ({
  ...signInFields,
  uri: `${BASE_URL}/api/paywalls/${paywall}/access`,
  resources: [`urn:sluice:paywall:${paywall}`],
})

/**
 * Signs a message as `account`, a valid one for a sign-in except for `fields`; `fields.address` may be that of a
 * contract wallet.
 */
export async function signMessage(
  account: PrivateKeyAccount,
  nonce: string,
  fields: Fields = {},
): Promise<SignedMessage> {
  const own = { address: account.address, nonce, issuedAt: new Date() }
  const message = createSiweMessage({ ...signInFields, version: "1", ...own, ...fields })
  return { message, signature: await account.signMessage({ message }) }
}
