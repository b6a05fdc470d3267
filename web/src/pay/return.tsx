/** A payer claims waiting money: a signature of the wallet that paid names the address to return it to. */
import { useState } from "preact/hooks"
import type { ReturnPage } from "../page-data.ts"
import { short } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { CodeField } from "../ui/field.tsx"
import { post, Refusal } from "./api.ts"
import { Amount, Card } from "./card.tsx"
import { problemMessage } from "./problems.ts"
import { currencyShown } from "./waiting.ts"
import { accountOf, signMessage } from "./wallet-calls.ts"
import { useWallets, type Wallet } from "./wallets.ts"

/** The card of a return. */
export function Return({ page }: { page: ReturnPage }) {
  const { t, local } = useWords()
  const wallets = useWallets(page.sandbox)
  const [address, setAddress] = useState(page.payer)
  const [saved, setSaved] = useState<string>()
  const [problem, setProblem] = useState("")
  const { merchant, payer } = page
  const values = { merchant, symbol: currencyShown(page.currency), amount: local(page.amount) }
  const sign = async (wallet: Wallet) => {
    setProblem("")
    try {
      const to = address.trim()
      if (!/^0x[0-9a-fA-F]{40}$/.test(to)) throw new Refusal("BAD_ADDRESS", "")
      const account = await accountOf(wallet.provider)
      if (account.toLowerCase() !== payer.toLowerCase()) return setProblem(t("returnWrongWallet", { address: payer }))
      const named = { id: page.resourceId, address: to }
      const { message } = await post<{ message: string }>("/api/pay/return-address/nonce", named)
      const complete = message.replace("{address}", payer)
      const signature = await signMessage(wallet.provider, account, complete)
      await post("/api/pay/return-address", { ...named, message: complete, signature })
      setSaved(to)
    } catch (error) {
      setProblem(problemMessage(t, error as Error, values))
    }
  }
  return (
    <Card
      page={page}
      head={
        <>
          <h1 class="state">{t("returnTitle")}</h1>
          <Amount unit={values.symbol} amount={page.amount} />
        </>
      }
    >
      <div role="status" class={`live ${saved ? "good" : "plain-text"}`} data-saved={saved !== undefined}>
        {saved && <h2 class="state">{t("returnSaved")}</h2>}
        <p>{saved ? t("returnSavedWords", { ...values, address: short(saved) }) : t("returnWords", values)}</p>
      </div>
      {!saved && (
        <div class="stack">
          <CodeField
            id="back-to"
            label={t("returnAddress")}
            value={address}
            change={setAddress}
            aria-invalid={problem !== ""}
          />
          {problem && (
            <p class="note bad" role="alert">
              {problem}
            </p>
          )}
          {wallets.map((wallet, i) => (
            <button
              key={wallet.id}
              type="button"
              class={i === 0 ? "primary" : "secondary"}
              onClick={() => sign(wallet)}
            >
              <bdi>{t("returnSign", { wallet: wallet.isTest ? t("testWallet") : wallet.name })}</bdi>
            </button>
          ))}
          {wallets.length === 0 && <p class="note">{t("noWallet")}</p>}
          <p class="quiet center">{t("returnExchange", values)}</p>
        </div>
      )}
    </Card>
  )
}
