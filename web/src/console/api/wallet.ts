/** The wallets of this browser (EIP-6963), and what they are asked to sign. */
import { createStore, type EIP6963ProviderDetail } from "mipd"
import type { TypedData } from "./failure.ts"

const found = createStore()

export type Wallet = EIP6963ProviderDetail
export const walletsHere = (): readonly Wallet[] => found.getProviders()

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

/** What a wallet's fault means to a person. */
export function walletWords(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: number; message?: string }
  if (code === 4001) return "The wallet refused it. Nothing changed."
  if (code === -32_002) return "The wallet already asks for something: open it and answer there."
  return message ?? "The wallet did not answer."
}
