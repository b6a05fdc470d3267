/** The wallets of this browser (EIP-6963), and what they are asked to sign. */
import { createStore, type EIP6963ProviderDetail } from "mipd"
import { chosenMerchant } from "./client.ts"
import { facts, firstMe, isSandbox } from "./facts.ts"
import type { TypedData } from "./failure.ts"

const found = createStore()

export type Wallet = Pick<EIP6963ProviderDetail, "provider"> & { info: { uuid: string; name: string } }
export const walletsHere = (): readonly Wallet[] => found.getProviders()

/** The wallets that can sign for the merchant: in the sandbox also its own payout wallet, whose key is worth nothing. */
export const signersHere = (): readonly Wallet[] => (isSandbox ? [...walletsHere(), sandboxWallet()] : walletsHere())

function sandboxWallet(): Wallet {
  const merchantId = chosenMerchant.get() ?? firstMe.merchants[0]?.merchantId
  const merchant = Math.max(
    0,
    facts.signIn.merchants.findIndex(({ id }) => id === merchantId),
  )
  const request = async ({ method, params = [] }: { method: string; params?: unknown }) => {
    if (method === "wallet_switchEthereumChain") return null
    const body = JSON.stringify({ method, params, merchant })
    const answer = await fetch("/sandbox/wallet", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    })
    const { result, message } = (await answer.json()) as { result?: unknown; message?: string }
    if (!answer.ok) throw new Error(message)
    return result
  }
  return { info: { uuid: "sandbox", name: "the sandbox's payout wallet" }, provider: { request } as never }
}

/** The account that a wallet offers. */
export async function accountOf({ provider }: Wallet): Promise<string> {
  const [account] = (await provider.request({ method: "eth_requestAccounts" })) as string[]
  if (account === undefined) throw new Error("The wallet offered no account.")
  return account
}

/** One signature of EIP-712 data by an account. */
export const signData = async ({ provider }: Wallet, account: string, data: TypedData): Promise<string> =>
  String(
    await provider.request({
      method: "eth_signTypedData_v4",
      params: [account as `0x${string}`, JSON.stringify(data)],
    }),
  )

/** Signs a browser in by a wallet (EIP-4361). */
export async function signMessage({ provider }: Wallet, account: string, message: string): Promise<string> {
  const bytes = Array.from(new TextEncoder().encode(message), byte => byte.toString(16).padStart(2, "0")).join("")
  return String(await provider.request({ method: "personal_sign", params: [`0x${bytes}`, account as `0x${string}`] }))
}

/** Sends a call from an account on a network, and answers the hash of its transaction. */
export async function sendCall(
  { provider }: Wallet,
  account: string,
  chainId: number,
  { to, data }: { to: string; data: string },
): Promise<string> {
  const chain = { chainId: `0x${chainId.toString(16)}` as const }
  await provider.request({ method: "wallet_switchEthereumChain", params: [chain] })
  const call = { from: account, to, data } as never
  return String(await provider.request({ method: "eth_sendTransaction", params: [call] }))
}

/** What a wallet's fault means to a person. */
export function walletWords(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: number; message?: string }
  if (code === 4001) return "The wallet refused the request. Nothing changed."
  if (code === -32_002) return "The wallet already has a request open: open the wallet and answer it there."
  return message ?? "The wallet did not answer."
}
