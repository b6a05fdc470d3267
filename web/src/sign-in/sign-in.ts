/** The buttons of the console's plain pages: sign in with a wallet or in the sandbox, and sign out. */
import "../ui/pages.css"
import { call, post } from "../pay/api.ts"
import { accountOf, chainOf, signMessage } from "../pay/wallet-calls.ts"
import type { Provider } from "../pay/wallets.ts"

/** How long wallets have to announce themselves. */
const ANNOUNCE_MS = 500

const notice = document.getElementById("notice")
const show = (words: string): void => {
  if (!notice) return
  notice.textContent = words
  notice.hidden = words === ""
}

/** The first wallet that announces itself (EIP-6963), or the one that every page of this browser has. */
function findWallet(): Promise<Provider | undefined> {
  return new Promise(resolve => {
    const found = (event: Event) => resolve((event as CustomEvent<{ provider?: Provider }>).detail?.provider)
    addEventListener("eip6963:announceProvider", found, { once: true })
    dispatchEvent(new Event("eip6963:requestProvider"))
    setTimeout(() => resolve((globalThis as { ethereum?: Provider }).ethereum), ANNOUNCE_MS)
  })
}

async function signInWithWallet(): Promise<void> {
  const wallet = await findWallet()
  if (!wallet) throw new Error("This browser has no wallet.")
  const account = await accountOf(wallet)
  const offer = await post<{ message: string; chainIds: number[] }>("/api/auth/nonce", {})
  const chainId = await chainOf(wallet).catch(() => undefined)
  // A contract can sign for itself only on its own network.
  const known = offer.chainIds.includes(chainId ?? 0)
  const message = known ? offer.message.replace(/^Chain ID: \d+$/m, `Chain ID: ${chainId}`) : offer.message
  const signed = message.replace("{address}", account)
  const signature = await signMessage(wallet, account, signed)
  await post("/api/console/session", { message: signed, signature })
}

/** The action of each button, by its `data-does`. */
const acts: Record<string, (button: HTMLElement) => Promise<unknown>> = {
  wallet: signInWithWallet,
  sandbox: ({ dataset }) => post("/api/console/session", { merchantId: dataset.merchant }),
  "sign-out": () => call("DELETE", "/api/console/session", {}),
}

for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-does]"))
  button.addEventListener("click", async () => {
    button.disabled = true
    show("")
    try {
      await acts[button.dataset.does ?? ""]?.(button)
      // The server renders the page again, for the new session.
      location.reload()
    } catch (error) {
      show(error instanceof Error && error.message ? error.message : "That did not work. Try again.")
      button.disabled = false
    }
  })
