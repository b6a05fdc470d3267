/** The wallets of this browser (EIP-6963), and the test wallet of a sandbox. */
import { useEffect, useState } from "preact/hooks"
import { shown } from "../ui/shown.ts"
import { post } from "./api.ts"

/** The interface between a page and a wallet (EIP-1193). */
export interface Provider {
  request(call: { method: string; params?: unknown[] }): Promise<unknown>
}

export interface Wallet {
  id: string
  name: string
  /** A picture as a `data:` address, which the wallet provides. */
  icon?: string
  provider: Provider
  isTest: boolean
}

/** Every buyer of the sandbox has money; the first one is used. */
const testWallet: Wallet = {
  id: "sluice.test",
  name: "",
  isTest: true,
  provider: {
    request: async ({ method, params = [] }) =>
      (await post<{ result: unknown }>("/sandbox/wallet", { method, params })).result,
  },
}

/** The most characters of a wallet's name that are shown. */
const LONGEST_NAME = 40

interface Announcement {
  info?: { uuid?: unknown; name?: unknown; icon?: unknown }
  provider?: Provider
}

/** The wallets that have announced themselves so far, in that order. In a sandbox the test wallet comes last. */
export function useWallets(sandbox: boolean): Wallet[] {
  const [wallets, setWallets] = useState<Wallet[]>([])
  useEffect(() => {
    const add = (event: Event) => {
      const { info, provider } = (event as CustomEvent<Announcement>).detail ?? {}
      const { uuid: id, name: given, icon } = info ?? {}
      // Anything may announce itself as a wallet.
      if (typeof id !== "string" || typeof given !== "string" || typeof provider?.request !== "function") return
      const name = [...shown(given)].slice(0, LONGEST_NAME).join("")
      if (!name) return
      // Only a picture inside the announcement is used; any other would cause a request to another server.
      const picture = typeof icon === "string" && icon.startsWith("data:image/") ? { icon } : {}
      setWallets(known =>
        known.some(wallet => wallet.id === id) ? known : [...known, { id, name, ...picture, provider, isTest: false }],
      )
    }
    addEventListener("eip6963:announceProvider", add)
    dispatchEvent(new Event("eip6963:requestProvider"))
    return () => removeEventListener("eip6963:announceProvider", add)
  }, [])
  return sandbox ? [...wallets, testWallet] : wallets
}
