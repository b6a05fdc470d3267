/** Ends a subscription, on its subscriber's page. */
import { useEffect, useRef, useState } from "preact/hooks"
import { useWords } from "../ui/context.ts"
import { momentOf } from "../ui/moments.ts"
import { shown } from "../ui/shown.ts"
import { change as ask, type Session, type Subscription } from "./calls.ts"

interface Props {
  session: Session
  subscription: Subscription
  change: (changed: Subscription) => void
  fail: (error: unknown) => void
}

/** Ends it at the end of the paid period, after a confirmation; or withdraws the cancellation. */
export function Cancel({ session, subscription, change, fail }: Props) {
  const { t, lang } = useWords()
  const { id, product, paidUntil, cancelAtPeriodEnd, canResume } = subscription
  const [asks, setAsks] = useState(false)
  const [done, setDone] = useState("")
  const said = useRef<HTMLParagraphElement>(null)
  const keep = useRef<HTMLButtonElement>(null)
  useEffect(() => {
    if (asks) keep.current?.focus()
  }, [asks])
  useEffect(() => {
    if (done) said.current?.focus()
  }, [done])
  const time = momentOf(paidUntil, lang)
  const isOver = Date.parse(paidUntil) <= Date.now()
  const carryOut = async (what: "cancel" | "resume") => {
    try {
      change(await ask(session, id, what))
      setAsks(false)
      setDone(what === "resume" ? t("cancelTakenBack") : isOver ? t("subEnded") : t("cancelDone", { time }))
    } catch (error) {
      fail(error)
    }
  }
  return (
    <>
      <p role="status" class="said note" tabIndex={-1} ref={said}>
        {done}
      </p>
      {canResume ? (
        <button type="button" class="secondary" onClick={() => carryOut("resume")}>
          {t("keepSubscription")}
        </button>
      ) : cancelAtPeriodEnd ? null : asks ? (
        <div class="note stack">
          <p>{t(isOver ? "cancelQuestionNow" : "cancelQuestion", { product: shown(product), time })}</p>
          <button type="button" class="secondary" ref={keep} onClick={() => setAsks(false)}>
            {t("cancelNo")}
          </button>
          <button type="button" class="secondary danger" onClick={() => carryOut("cancel")}>
            {t("cancelYes")}
          </button>
        </div>
      ) : (
        <button type="button" class="link" onClick={() => setAsks(true)}>
          {t("cancelSubscription")}
        </button>
      )}
    </>
  )
}
