/** The ways to pay without a wallet in this browser: from a phone, and manually. */
import { useState } from "preact/hooks"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { toUnits } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { CopyRow } from "../ui/copy.tsx"
import { CodeField } from "../ui/field.tsx"
import { Qr } from "../ui/qr.tsx"
import { Refusal, submitHash } from "./api.ts"
import { problemMessage } from "./problems.ts"
import { remember } from "./store.ts"

interface Props {
  page: PayPage
  status: CheckoutStatus
}

type Code = "page" | "request" | "address"

/** A transfer request in the form that wallets read (EIP-681). */
const requestOf = ({ token, network }: PayPage, status: CheckoutStatus): string =>
  `ethereum:${token.address}@${network.chainId}/transfer?address=${status.payTo}&uint256=${toUnits(status.missing, token.decimals)}`

/** One code at a time: this page by default, or the payment request or the plain address. */
export function PhoneWay({ page, status }: Props) {
  const { t } = useWords()
  const [code, setCode] = useState<Code>("page")
  const { symbol } = page.token
  const request = requestOf(page, status)
  // Without a query that may have been added to the URL. A code can hold 2,331 bytes, but only a few hundred scan well.
  const here = `${location.origin}${location.pathname}`
  const texts = { page: here, request, address: status.payTo ?? "" }
  const words = { page: t("scanPage"), request: t("scanWallet"), address: t("scanAddress") }
  const names = { page: t("qrPage"), request: t("qrRequest"), address: t("qrAddress") }
  // A reservation is signed on this page, because no wallet could make it as a plain transfer.
  if (status.reservation)
    return (
      <div class="stack">
        <Qr text={here} label={`${t("qrLabel")}: ${names.page}`} />
        <p class="center">{words.page}</p>
      </div>
    )
  return (
    <div class="stack">
      <Qr text={texts[code]} label={`${t("qrLabel")}: ${names[code]}`} />
      <fieldset class="choices">
        <legend class="aside">{t("qrOf")}</legend>
        {(["page", "request", "address"] as const).map(each => (
          <label key={each}>
            <input type="radio" name="code" value={each} checked={each === code} onChange={() => setCode(each)} />
            <span>{names[each]}</span>
          </label>
        ))}
      </fieldset>
      <p class="center">{words[code]}</p>
      {page.kind === "paywall" && <p class="note">{t("ownWallet")}</p>}
      <a class="secondary" href={request}>
        {t("openWallet")}
      </a>
      <p class="quiet center">{t("tokenWarning", { symbol, native: "ETH" })}</p>
      {page.kind === "paywall" && <p class="quiet center">{t("paidElsewhere", { button: t("alreadyPaid") })}</p>}
    </div>
  )
}

/** The values to send and the address, each with a copy button, and a field for the hash. */
export function ManualWay({ page, status, changed }: Props & { changed: () => void }) {
  const { t } = useWords()
  const { token, network } = page
  return (
    <div class="stack">
      <p>{t(page.kind === "paywall" ? "ownWallet" : "manualIntro")}</p>
      <dl class="facts">
        <CopyRow name={t("amount")} value={status.missing} text={`${status.missing} ${token.symbol}`} />
        <CopyRow name={t("address")} value={status.payTo ?? ""} />
        <div>
          <dt>{t("network")}</dt>
          <dd>{network.title}</dd>
        </div>
        <CopyRow name={t("tokenContract")} value={token.address} />
      </dl>
      <p class="note">{t("manualWarning", { symbol: token.symbol, network: network.title })}</p>
      {page.kind === "paywall" && <p class="quiet">{t("paidElsewhere", { button: t("alreadyPaid") })}</p>}
      <HashForm page={page} id={status.sessionId} changed={changed} />
    </div>
  )
}

function HashForm({ page, id, changed }: { page: PayPage; id: string; changed: () => void }) {
  const { t } = useWords()
  const [text, setText] = useState("")
  const [from, setFrom] = useState("")
  const [problem, setProblem] = useState("")
  const needsPayer = page.kind === "paywall"
  const submit = async (event: Event) => {
    event.preventDefault()
    const txHash = text.trim().toLowerCase()
    const payer = needsPayer ? { payer: from.trim() } : {}
    try {
      if (!/^0x[0-9a-f]{64}$/.test(txHash)) throw new Refusal("INVALID_TX_HASH", "")
      if (needsPayer && !/^0x[0-9a-fA-F]{40}$/.test(from.trim())) throw new Refusal("BAD_ADDRESS", "")
      await submitHash(page, { id, txHash, ...payer })
      remember(id, { txHash, ...payer })
      changed()
    } catch (error) {
      setProblem(problemMessage(t, error as Error, {}))
      document.getElementById("hash")?.focus()
    }
  }
  return (
    <details>
      <summary>{t("haveHash")}</summary>
      <form class="stack" onSubmit={submit}>
        <CodeField
          id="hash"
          label={t("hashLabel")}
          value={text}
          change={setText}
          fault={problem}
          hint={t("hashHint")}
        />
        {needsPayer && <CodeField id="payer" label={t("yourWallet", { address: "" })} value={from} change={setFrom} />}
        <button type="submit" class="secondary">
          {t("hashSubmit")}
        </button>
      </form>
    </details>
  )
}
