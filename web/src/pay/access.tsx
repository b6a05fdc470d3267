/** A paywall's content. A signature of the wallet that has access opens it, whether that paid now or long ago. */
import { useState } from "preact/hooks"
import type { CheckoutStatus, PaywallPage, PaywallStatus } from "../page-data.ts"
import { short } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { CopyRow } from "../ui/copy.tsx"
import { momentOf } from "../ui/moments.ts"
import { shown } from "../ui/shown.ts"
import { post, Refusal } from "./api.ts"
import { newTab } from "./embedded.ts"
import { problemMessage } from "./problems.ts"
import { remember } from "./store.ts"
import { accountOf, signMessage } from "./wallet-calls.ts"
import type { Wallet } from "./wallets.ts"

/** Access from this year on never ends; compared as text. */
const FOREVER = "9999"

interface Content {
  contentUrl: string | null
  contentData: Record<string, unknown> | null
}

interface Props {
  page: PaywallPage
  status: CheckoutStatus
  wallets: Wallet[]
  changed: () => void
  /** Whether this visitor's wallet is known to have access. */
  isPaid: boolean
}

/**
 * Proves that a wallet belongs to the visitor, and returns the content. Throws `ACCESS_REQUIRED` if the wallet has no
 * access.
 */
async function open(id: string, wallet: Wallet): Promise<Content> {
  const account = await accountOf(wallet.provider)
  const response = await fetch(`/paywall/${id}/status?address=${account}`).catch(() => undefined)
  if (!response?.ok) throw new Refusal("OFFLINE", "")
  const { address, accessUntil } = (await response.json()) as PaywallStatus
  if (address === null || accessUntil === null) throw new Refusal("ACCESS_REQUIRED", "")
  const { message } = await post<{ message: string }>(`/api/paywalls/${id}/access/nonce`, {})
  const complete = message.replace("{address}", address)
  const signature = await signMessage(wallet.provider, account, complete)
  const content = await post<Content>(`/api/paywalls/${id}/access`, { address, message: complete, signature })
  remember(id, { payer: account })
  return content
}

/** The button that opens the content, and then the content. */
export function Access({ page, status, wallets, changed, isPaid }: Props) {
  const { t, lang } = useWords()
  const [content, setContent] = useState<Content>()
  const [error, setError] = useState<Error>()
  const [asks, setAsks] = useState(false)
  const prove = async (wallet: Wallet) => {
    setError(undefined)
    try {
      setContent(await open(status.sessionId, wallet))
      changed()
    } catch (fault) {
      setError(fault as Error)
    }
  }
  if (content) return <Shown content={content} />
  if (!isPaid && !asks)
    return (
      <button type="button" class="link" onClick={() => setAsks(true)}>
        {t("alreadyPaid")}
      </button>
    )
  const { address, accessUntil } = status as PaywallStatus
  return (
    <div class="stack">
      {address && isPaid && (
        <p class="quiet center">
          <bdi>{t("unlockedWords", { address: short(address) })}</bdi>
        </p>
      )}
      {isPaid && accessUntil && accessUntil < FOREVER && (
        <p class="quiet center">{t("accessUntil", { time: momentOf(accessUntil, lang) })}</p>
      )}
      <p class="center">{t("proveWords")}</p>
      {error && (
        <p class="note bad" role="alert">
          {problemMessage(t, error, { symbol: page.token.symbol })}
        </p>
      )}
      {wallets.length === 0 && <p class="note">{t("noWallet")}</p>}
      {wallets.map((wallet, i) => (
        <button
          key={wallet.id}
          type="button"
          class={isPaid && i === 0 ? "primary" : "secondary"}
          onClick={() => prove(wallet)}
        >
          <span>
            {t("openContent")}
            {wallets.length > 1 && <bdi>: {wallet.isTest ? t("testWallet") : wallet.name}</bdi>}
          </span>
        </button>
      ))}
    </div>
  )
}

/** Shows text and lists unchanged; nothing in them is executed. */
function Shown({ content: { contentUrl, contentData } }: { content: Content }) {
  const { t } = useWords()
  const isLink = contentUrl !== null && /^https?:\/\//i.test(contentUrl)
  return (
    <div class="stack" data-content="open">
      {isLink && (
        <a class="primary" href={contentUrl} rel="noreferrer" target={newTab}>
          {t("openContent")}
        </a>
      )}
      {contentData && (
        <dl class="facts">
          {Object.entries(contentData).map(([name, value]) => (
            <CopyRow
              key={name}
              name={shown(name)}
              value={shown(typeof value === "string" ? value : JSON.stringify(value))}
              isProse
            />
          ))}
        </dl>
      )}
    </div>
  )
}
