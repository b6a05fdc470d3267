/** The checkout: its head, its state, and the ways to pay. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { useWords } from "../ui/context.ts"
import { Tabs } from "../ui/tabs.tsx"
import { Access } from "./access.tsx"
import { Amount, Card, What } from "./card.tsx"
import { notifyPaid } from "./embedded.ts"
import { End } from "./end.tsx"
import { Fields } from "./fields.tsx"
import { follow, type Offline } from "./live.ts"
import { problemMessage, submissionProblem } from "./problems.ts"
import { InvoiceFacts, ManageLink, Renews, Subscribe } from "./renewal.tsx"
import { Returns } from "./returns.tsx"
import { isDone, isPayable, isSettled, type Stage, stageOf } from "./stage.ts"
import { isUnsure, type Memory, onOtherTab, recall, remember } from "./store.ts"
import { useSubmission } from "./use-submission.ts"
import { type Paying, useWallet, type Way } from "./use-wallet.ts"
import { waitingIn } from "./waiting.ts"
import { WalletWay } from "./wallet-way.tsx"
import { useWallets, type Wallet } from "./wallets.ts"
import { ManualWay, PhoneWay } from "./ways.tsx"
import { wordsOf } from "./words-of.ts"

type WayKey = "wallet" | "phone" | "manual"

interface Live {
  status: CheckoutStatus
  memory: Memory
  offline: Offline | undefined
  /** Reads the browser's memory and the server's state again. */
  changed: () => void
}

/** The path of the payment, and the query about it. */
function pathOf({ kind, status }: PayPage, { txHash, payer }: Memory): { path: string; query: string } {
  const hash = txHash === undefined ? "" : `txHash=${txHash}`
  if (kind === "checkout") return { path: `/pay/${status.sessionId}`, query: hash }
  return { path: `/paywall/${status.sessionId}`, query: payer === undefined ? "" : `address=${payer}&${hash}` }
}

/** The state of the payment, updated while the page is open. */
function useLive(page: PayPage): Live {
  const { sessionId } = page.status
  const [status, setStatus] = useState<CheckoutStatus>(page.status)
  const [memory, setMemory] = useState(() => recall(sessionId))
  const [offline, setOffline] = useState<Offline>()
  const { path, query } = pathOf(page, memory)
  const [turn, setTurn] = useState(0)
  const heardAt = useRef(Date.now())
  // Each turn starts following again, from the current state.
  useEffect(() => {
    const onState = (state: CheckoutStatus) => {
      heardAt.current = Date.now()
      setStatus(state)
    }
    return follow<CheckoutStatus>(path, query, {
      onState,
      onOffline: setOffline,
      isOver: isSettled,
      heardAt: () => heardAt.current,
    })
  }, [path, query, turn])
  useEffect(() => onOtherTab(sessionId, () => setMemory(recall(sessionId))), [sessionId])
  // Not by a separate request: its answer could come late, and show an older state than the known one.
  const changed = useCallback(() => {
    setMemory(recall(sessionId))
    setTurn(n => n + 1)
  }, [sessionId])
  return { status, memory, offline, changed }
}

/** The whole card of a checkout or a paywall. */
export function Checkout({ page }: { page: PayPage }) {
  const { t, local } = useWords()
  const live = useLive(page)
  const { status, memory, offline } = live
  const known = stageOf(status, { txHash: memory.txHash, isSending: isUnsure(memory.sentAt) })
  // It may have been paid elsewhere meanwhile. A payer who is asked for money now may pay twice.
  const stage = offline && isPayable(known) ? "unknown" : known
  const wallets = useWallets(page.sandbox)
  const payable = isPayable(stage)
  const paying = useWallet({ page, status, payable, changed: live.changed })
  useSubmission({ page, status, memory, changed: live.changed })
  const said = wordsOf(t, page, status, stage)
  // The server can't be reached. That is not the state `unknown`, in which the chain's network is silent. The note
  // below gives the cause.
  const words = stage === known ? said : { ...said, title: t("outdated"), text: t("outdatedWords") }
  const first = useRef(stage)
  const { cancel, isAsked } = paying
  // A phone hides the page while its wallet asks. A state that is briefly unknown ends no attempt.
  const isOver = !payable && stage !== "unknown"
  useEffect(() => {
    if (isOver) cancel()
  }, [isOver, cancel])
  const isIdle = paying.step.at === "idle" && !isUnsure(memory.sendingAt)
  const { sessionId } = status
  const done = isDone(stage, status)
  useEffect(() => {
    if (!done) return
    notifyPaid(sessionId)
    remember(sessionId, { sendingAt: undefined, sentAt: undefined, signedAt: undefined, givenUpAt: undefined })
  }, [done, sessionId])
  const tried = useRef(false)
  if (stage === "reserving") tried.current = true
  const asked = stage === "part" ? status.missing : status.amount
  const { symbol } = page.token
  const renewal = page.kind === "checkout" ? page.renewal : undefined
  return (
    <Card
      page={page}
      head={
        <>
          {page.kind === "paywall" && (
            <p class="name">
              <bdi>{page.name}</bdi>
            </p>
          )}
          {renewal && (
            <p class="name">
              <bdi>{renewal.product}</bdi>
            </p>
          )}
          <What text={page.description} />
          <Amount unit={symbol} amount={asked} as="h1" />
          {payable && local(asked) !== asked && <p class="quiet">{t("exactly", { amount: asked, symbol })}</p>}
          <p class="quiet">{t("onNetwork", { symbol, network: page.network.title })}</p>
          {payable && page.kind === "checkout" && !status.invoice && <Deadline expiresAt={status.expiresAt} />}
          {payable && renewal && <Renews renewal={renewal} />}
        </>
      }
    >
      {stage !== "paid" && <InvoiceFacts status={status} />}
      <StateWords stage={stage} status={status} words={words} />
      {isAsked && (isOver || (payable && isIdle)) && (
        <p class="note wait" role="alert">
          {t("declineOpen")}
        </p>
      )}
      <Returns page={page} waiting={waitingIn(status, stage)} />
      {offline && !isSettled(status) && <OfflineNote {...offline} />}
      {payable && tried.current && (
        <p class="note wait" role="alert">
          {t("reserveAgain")}
        </p>
      )}
      {payable ? (
        <Pay page={page} live={live} wallets={wallets} paying={paying} />
      ) : (
        <End
          page={page}
          status={status}
          stage={stage}
          wasOpen={first.current !== stage && !isAsked}
          restart={() => restart(live)}
        />
      )}
      {page.kind === "paywall" && (payable || stage === "paid" || stage === "paused") && (
        <Access page={page} status={status} wallets={wallets} changed={live.changed} isPaid={stage === "paid"} />
      )}
      {page.kind === "paywall" && (payable || (stage === "paused" && !status.paused)) && <Subscribe page={page} />}
      {status.invoice && <ManageLink />}
    </Card>
  )
}

/** Says that the server can't be reached, or that it told this network to wait. */
function OfflineNote({ until }: Offline) {
  const { t, lang } = useWords()
  const time = new Intl.DateTimeFormat(`${lang}-u-nu-latn`, { timeStyle: "short" })
  return <p class="note wait">{until === undefined ? t("offline") : t("busyUntil", { time: time.format(until) })}</p>
}

/** Stops waiting for a transfer that never appeared, so that the payer can pay in another way. It may still arrive. */
function restart({ status, changed }: Live): void {
  const forgotten = { txHash: undefined, sendingAt: undefined, sentAt: undefined, signedAt: undefined }
  remember(status.sessionId, { ...forgotten, givenUpAt: Date.now() })
  changed()
}

/** The only region that a screen reader announces. */
function StateWords({
  stage,
  status,
  words,
}: {
  stage: Stage
  status: CheckoutStatus
  words: ReturnType<typeof wordsOf>
}) {
  const { t } = useWords()
  const { confirmations: done, requiredConfirmations: needed } = status
  const waits = words.tone === "wait" && stage !== "part"
  return (
    <div role="status" class={`live ${words.tone}`} data-stage={stage}>
      {waits && <span class="spinner" aria-hidden="true" />}
      {isDone(stage, status) && <Tick />}
      {words.title && <h2 class="state">{words.title}</h2>}
      {words.text && <p>{words.text}</p>}
      {stage === "confirming" && (
        <>
          <progress max={needed} value={Math.min(done, needed)} aria-label={t("confirming")} />
          <p class="quiet">{t("confirmations", { done: Math.min(done, needed), needed })}</p>
        </>
      )}
    </div>
  )
}

const Tick = () => (
  <svg class="tick" viewBox="0 0 48 48" aria-hidden="true">
    <circle cx="24" cy="24" r="24" />
    <path d="M14 25l7 7 14-15" />
  </svg>
)

function Deadline({ expiresAt }: { expiresAt: string }) {
  const { t, lang } = useWords()
  const end = new Date(expiresAt)
  const isToday = end.toDateString() === new Date().toDateString()
  const form: Intl.DateTimeFormatOptions = isToday
    ? { timeStyle: "short" }
    : { timeStyle: "short", dateStyle: "medium" }
  return <p class="quiet">{t("payBefore", { time: new Intl.DateTimeFormat(`${lang}-u-nu-latn`, form).format(end) })}</p>
}

interface PayProps {
  page: PayPage
  live: Live
  wallets: Wallet[]
  paying: Paying
}

function Pay({ page, live, wallets, paying }: PayProps) {
  const { t } = useWords()
  const { status, memory, changed } = live
  const [chosen, setChosen] = useState<WayKey>()
  const [wanted, setWanted] = useState<Way>("signature")
  const way = status.gasless ? wanted : "transfer"
  const key = chosen ?? (wallets.length > 0 ? "wallet" : "phone")
  if (status.payerFields.length > 0 && !memory.answered)
    return <Fields sessionId={status.sessionId} names={status.payerFields} done={changed} />
  const isAsking = ["connecting", "confirm", "submitting"].includes(paying.step.at)
  // Replaces the ways to pay: a payer who pays again may pay twice.
  if (isUnsure(memory.sendingAt) && !isAsking) return <MaybeSent page={page} live={live} paying={paying} />
  if (isUnsure(memory.signedAt) && status.gasless && wallets.length > 0)
    return (
      <>
        <p class="note wait">{t("maybeSigned")}</p>
        <WalletWay page={page} status={status} wallets={wallets} paying={paying} way="signature" />
        <button type="button" class="link" onClick={() => restart(live)}>
          {t("startOver")}
        </button>
      </>
    )
  const tabs = [
    { key: "wallet", title: t("wayWallet") },
    { key: "phone", title: t("wayPhone") },
    ...(status.reservation ? [] : [{ key: "manual", title: t("wayManual") } as const]),
  ] as const
  return (
    <>
      <Notices page={page} live={live} />
      <Tabs id="way" label={t("waysToPay")} tabs={[...tabs]} chosen={key} choose={setChosen}>
        {key === "wallet" && (
          <WalletWay page={page} status={status} wallets={wallets} paying={paying} way={way} setWay={setWanted} />
        )}
        {key === "phone" && <PhoneWay page={page} status={status} />}
        {key === "manual" && <ManualWay page={page} status={status} changed={changed} />}
      </Tabs>
      {status.payTo && (
        <a
          class="link quiet center"
          href={`/address/${status.payTo}?lang=${page.lang}`}
          target="_blank"
          rel="noreferrer"
        >
          {t("moneyGoes")}
        </a>
      )}
    </>
  )
}

/** A transfer that the wallet was asked for, and that may have been sent. */
function MaybeSent({ page, live, paying }: { page: PayPage; live: Live; paying: Paying }) {
  const { t } = useWords()
  const { status, changed } = live
  const { step } = paying
  const note = useRef<HTMLParagraphElement>(null)
  // The button that opened this view is gone.
  useEffect(() => note.current?.focus(), [])
  const forget = () => {
    remember(status.sessionId, { sendingAt: undefined })
    changed()
  }
  return (
    <div class="stack">
      {step.at === "problem" && (
        <p class="note bad" role="alert">
          {problemMessage(t, step.error, { symbol: page.token.symbol, network: page.network.title })}
        </p>
      )}
      <p class="note wait" role="alert" tabIndex={-1} ref={note}>
        {t("maybeSent")}
      </p>
      <button type="button" class="secondary" onClick={forget}>
        {t("notSent")}
      </button>
    </div>
  )
}

/** Notices next to the ways to pay: about an earlier transfer that may still arrive, and a hash that was refused. */
function Notices({ page, live }: { page: PayPage; live: Live }) {
  const { t } = useWords()
  const { submission } = live.status
  const { txHash, givenUpAt, signedAt, sentAt } = live.memory
  const mayArrive = isUnsure(givenUpAt) || isUnsure(signedAt) || (sentAt !== undefined && submission === null)
  const isMine = submission !== null && submission.txHash === txHash && submission.status === "failed"
  const values = { symbol: page.token.symbol, network: page.network.title }
  return (
    <>
      {mayArrive && <p class="note wait">{t("mayStillArrive")}</p>}
      {isMine && (
        <p class="note bad" role="alert">
          {submissionProblem(t, submission.reason, submission.message, values)}
        </p>
      )}
    </>
  )
}
