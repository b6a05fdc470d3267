/** The content when nothing has to be paid now: waiting, or an end. */
import { useEffect, useState } from "preact/hooks"
import type { CheckoutPage, CheckoutStatus, PayPage, Reservation } from "../page-data.ts"
import { short } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { CopyRow } from "../ui/copy.tsx"
import { momentOf } from "../ui/moments.ts"
import { isEmbedded, newTab } from "./embedded.ts"
import { InvoicePeriod } from "./renewal.tsx"
import { ledgerOf, reclaimFacts } from "./reservation.ts"
import { isDone, isZero, type Stage } from "./stage.ts"

const REDIRECT_S = 6
/** The length of an address; longer text is shortened. */
const LONG = 42

interface Props {
  page: PayPage
  status: CheckoutStatus
  stage: Stage
  /** Whether this visitor watched the payment arrive. */
  wasOpen: boolean
  restart: () => void
}

/** The rest of the card in every stage in which nobody is asked for money. */
export function End({ page, status, stage, wasOpen, restart }: Props) {
  const { t } = useWords()
  const { reservation } = status
  if (page.kind === "checkout" && reservation && ["reserved", "paid", "released", "refunded"].includes(stage))
    return <Reserved page={page} status={status} reservation={reservation} stage={stage} wasOpen={wasOpen} />
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
  if (stage === "confirming" || stage === "reserving") return <p class="quiet center">{t("canClose")}</p>
  return null
}

interface ReservedProps {
  page: CheckoutPage
  status: CheckoutStatus
  reservation: Reservation
  stage: Stage
  wasOpen: boolean
}

/** The outcome of a payment that was reserved, with its transactions, and the way back. */
function Reserved({ page, status, reservation, stage, wasOpen }: ReservedProps) {
  const { t, local, lang } = useWords()
  const { redirectUrl } = status
  return (
    <div class="stack">
      <dl class="facts ledger">
        {ledgerOf(reservation).map(({ name, amount, txHashes }) => (
          <div key={name}>
            <dt>{t(name)}</dt>
            <dd>
              {local(amount)} {page.token.symbol}
            </dd>
            <Transactions page={page} txHashes={txHashes} />
          </div>
        ))}
        {!isZero(reservation.left) && reservation.phase === "held" && (
          <div>
            <dt>{t("reservedUntil")}</dt>
            <dd>{momentOf(reservation.captureBefore, lang)}</dd>
          </div>
        )}
      </dl>
      {reclaimFacts(reservation).length > 0 && (
        <dl class="facts">
          {reclaimFacts(reservation).map(({ name, value }) => (
            <CopyRow key={name} name={t(name)} value={value} text={value.length > LONG ? short(value) : value} />
          ))}
        </dl>
      )}
      {stage !== "reserved" && <ReceiptLink page={page} id={status.sessionId} />}
      {stage === "reserved" && reservation.phase === "held" && (
        <p class="quiet center">{t(isDone(stage, status) ? "reservedClose" : "canClose")}</p>
      )}
      {redirectUrl && isDone(stage, status) && <Return url={redirectUrl} merchant={page.merchant} auto={wasOpen} />}
    </div>
  )
}

/** The transactions that moved an amount, one per line; nothing if there are none. */
const Transactions = ({ page, txHashes }: { page: CheckoutPage; txHashes: readonly string[] }) =>
  txHashes.length > 0 ? (
    <dd class="hashes">
      {txHashes.map(txHash => (
        <Transaction key={txHash} page={page} txHash={txHash} />
      ))}
    </dd>
  ) : null

/** The hash of a transaction, linked to the network's explorer if there is one. */
function Transaction({ page, txHash }: { page: CheckoutPage; txHash: string }) {
  const { t } = useWords()
  const { explorer } = page.network
  return explorer ? (
    <a href={`${explorer}/tx/${txHash}`} rel="noreferrer" target="_blank" aria-label={t("viewTransaction")}>
      <code dir="ltr">{short(txHash)}</code>
    </a>
  ) : (
    <code dir="ltr" title={txHash}>
      {short(txHash)}
    </code>
  )
}

const ReceiptLink = ({ page, id }: { page: CheckoutPage; id: string }) => {
  const { t } = useWords()
  return (
    <a class="link center" target={newTab} href={`/receipt/${id}?lang=${page.lang}`}>
      {t("viewReceipt")}
    </a>
  )
}

function Paid({ page, status, wasOpen }: { page: CheckoutPage; status: CheckoutStatus; wasOpen: boolean }) {
  const { t, local } = useWords()
  const { redirectUrl, txHashes, waiting } = status
  return (
    <div class="stack">
      <dl class="facts ledger">
        <div>
          <dt>{t("paidAmount")}</dt>
          <dd>
            {local(status.amountReceived)} {page.token.symbol}
          </dd>
          <Transactions page={page} txHashes={txHashes} />
        </div>
        <div>
          <dt>{t("paidTo")}</dt>
          <dd>
            <bdi>{page.merchant}</bdi>
          </dd>
        </div>
        {status.invoice && <InvoicePeriod invoice={status.invoice} />}
      </dl>
      <ReceiptLink page={page} id={status.sessionId} />
      {redirectUrl && <Return url={redirectUrl} merchant={page.merchant} auto={wasOpen && waiting.length === 0} />}
    </div>
  )
}

/**
 * The way back to the merchant. It redirects after a few seconds, unless the payer stays, is already on the merchant's
 * page, or has money here that waits for a decision.
 */
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
