/** The wallets of this browser (EIP-6963), and the test wallet of a sandbox. */
import { useEffect, useState } from "preact/hooks"
import { post } from "./api.ts"

/** How pages talk to a wallet (EIP-1193). */
export interface Provider {
  request(call: { method: string; params?: unknown[] }): Promise<unknown>
}

export interface Wallet {
  id: string
  name: string
  /** A picture as a `data:` address, as the wallet brings it. */
  icon?: string
  provider: Provider
  isTest: boolean
}

/** Each buyer of the sandbox has money; the first is taken. */
const testWallet: Wallet = {
  id: "sluice.test",
  name: "",
  isTest: true,
  provider: {
    request: async ({ method, params = [] }) =>
      (await post<{ result: unknown }>("/sandbox/wallet", { method, params })).result,
  },
}

interface Announcement {
  info?: { uuid?: string; name?: string; icon?: string }
  provider?: Provider
}

/** The wallets that have announced themselves so far, in their order; in a sandbox the test wallet comes last. */
export function useWallets(sandbox: boolean): Wallet[] {
  const [wallets, setWallets] = useState<Wallet[]>([])
  useEffect(() => {
    const add = (event: Event) => {
      const { info, provider } = (event as CustomEvent<Announcement>).detail ?? {}
      if (!info?.uuid || !info.name || !provider) return
      const { uuid: id, name, icon } = info
      // Anything but a picture in the announcement itself would be a request to another server.
      const picture = icon?.startsWith("data:image/") ? { icon } : {}
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
