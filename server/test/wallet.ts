/** Wallets of tests: what a wallet signs for a door, with any field otherwise than it must be. */
import type { PrivateKeyAccount } from "viem/accounts"
import { createSiweMessage } from "viem/siwe"

/** A wallet's signed message, as `POST /api/auth/verify` takes it. */
export interface SignedMessage {
  message: string
  signature: `0x${string}`
}

export type Fields = Partial<Parameters<typeof createSiweMessage>[0]>

/** Where tests' services believe themselves to be. */
export const BASE_URL = "http://127.0.0.1:4000"

/** What a good sign-in message says, but for its nonce. */
export const signInFields = {
  domain: "127.0.0.1:4000",
  uri: `${BASE_URL}/api/auth/verify`,
  chainId: 84532,
  resources: ["urn:sluice:sign-in"],
} satisfies Fields

/** What a good message for a paywall says, but for its nonce. */
export const accessFields = (paywall: string): Fields => ({
  ...signInFields,
  uri: `${BASE_URL}/api/paywalls/${paywall}/access`,
  resources: [`urn:sluice:paywall:${paywall}`],
})

/**
 * Signs a message as `account`, a good one for a sign-in but for `fields`; `fields.address` may be that of a contract
 * wallet.
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
