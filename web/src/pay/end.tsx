/** What follows once nothing is to be paid now: waiting, or an end. */
import { useEffect, useState } from "preact/hooks"
import type { CheckoutPage, CheckoutStatus, PayPage } from "../page-data.ts"
import { short } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { isEmbedded, newTab } from "./embedded.ts"
import type { Stage } from "./stage.ts"

const REDIRECT_S = 6

interface Props {
  page: PayPage
  status: CheckoutStatus
  stage: Stage
  /** Whether this visitor saw it come. */
  wasOpen: boolean
  restart: () => void
}

/** The rest of the card in every stage in which nobody is asked for money. */
export function End({ page, status, stage, wasOpen, restart }: Props) {
  const { t } = useWords()
  if (stage === "paid" && page.kind === "checkout") return <Paid page={page} status={status} wasOpen={wasOpen} />
  if (stage === "sent")
    return (
      <div class="stack center">
        <p class="quiet">{t("canClose")}</p>
        {!status.relaying && (
          <details>
            <summary>{t("notShowing")}</summary>
            <button type="button" class="secondary" onClick={restart}>
              {t("startOver")}
            </button>
          </details>
        )}
      </div>
    )
  if (stage === "confirming") return <p class="quiet center">{t("canClose")}</p>
  return null
}

function Paid({ page, status, wasOpen }: { page: CheckoutPage; status: CheckoutStatus; wasOpen: boolean }) {
  const { t, local } = useWords()
  const { redirectUrl, txHash } = status
  const { explorer } = page.network
  return (
    <div class="stack">
      <dl class="facts ledger">
        <div>
          <dt>{t("paidAmount")}</dt>
          <dd>
            {local(status.amountReceived)} {page.token.symbol}
          </dd>
        </div>
        <div>
          <dt>{t("paidTo")}</dt>
          <dd>
            <bdi>{page.merchant}</bdi>
          </dd>
        </div>
        {txHash && (
          <div>
            <dt>{t("transaction")}</dt>
            <dd>
              {explorer ? (
                <a href={`${explorer}/tx/${txHash}`} rel="noreferrer" target="_blank" aria-label={t("viewTransaction")}>
                  <code dir="ltr">{short(txHash)}</code>
                </a>
              ) : (
                <code dir="ltr" title={txHash}>
                  {short(txHash)}
                </code>
              )}
            </dd>
          </div>
        )}
      </dl>
      <a class="link center" target={newTab} href={`/receipt/${status.sessionId}?lang=${page.lang}`}>
        {t("viewReceipt")}
      </a>
      {redirectUrl && <Return url={redirectUrl} merchant={page.merchant} auto={wasOpen} />}
    </div>
  )
}

/** The way back to the merchant: by itself after some seconds, unless the payer stays, or is on the merchant's page already. */
function Return({ url, merchant, auto }: { url: string; merchant: string; auto: boolean }) {
  const { t } = useWords()
  const [left, setLeft] = useState(auto && !isEmbedded ? REDIRECT_S : -1)
  useEffect(() => {
    if (left < 0) return
    if (left === 0) return location.assign(url)
    const timer = setTimeout(() => setLeft(left - 1), 1_000)
    return () => clearTimeout(timer)
  }, [left, url])
  return (
    <>
      <a class="primary" href={url} target={isEmbedded ? "_top" : undefined}>
        {t("backTo", { merchant })}
      </a>
      {left > 0 && (
        <p class="quiet center">
          <span aria-hidden="true">{t("redirecting", { seconds: left })}</span>{" "}
          <button type="button" class="link" onClick={() => setLeft(-1)}>
            {t("stay")}
          </button>
        </p>
      )}
    </>
  )
}
