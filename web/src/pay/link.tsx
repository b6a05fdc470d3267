/** A payment link: starts a checkout for this visitor, and asks for the amount if the link leaves it open. */
import { useCallback, useEffect, useState } from "preact/hooks"
import type { CheckoutStatus, LinkPage } from "../page-data.ts"
import { amountTyped } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { Field } from "../ui/field.tsx"
import { post, Refusal } from "./api.ts"
import { Amount, Card, What } from "./card.tsx"
import { problemMessage } from "./problems.ts"
import { recall, remember } from "./store.ts"

const keyOf = ({ slug }: LinkPage) => `link:${slug}`

/**
 * The checkout that this visitor has started from a link with a fixed price, while it can be paid. So another visit
 * starts no second one.
 */
async function startedOf(page: LinkPage): Promise<string | undefined> {
  const { sessionId } = recall(keyOf(page))
  if (sessionId === undefined) return undefined
  const response = await fetch(`/pay/${sessionId}/status`).catch(() => undefined)
  if (!response?.ok) return undefined
  const { status, over, amount } = (await response.json()) as CheckoutStatus
  const isOpen = status === "pending" || status === "verifying"
  return isOpen && !over && amount === page.amount ? sessionId : undefined
}

/** Calls `then` once somebody looks at the page, because browsers run scripts of pages that they preload. */
function whenShown(then: () => void): () => void {
  if (!("prerendering" in document && document.prerendering)) then()
  else document.addEventListener("prerenderingchange", then, { once: true })
  return () => document.removeEventListener("prerenderingchange", then)
}

/** The card of a link. With a fixed amount it continues automatically. */
export function Link({ page }: { page: LinkPage }) {
  const { t } = useWords()
  const [amount, setAmount] = useState("")
  const [error, setError] = useState<Error>()
  const { symbol } = page.token
  const start = useCallback(
    async (chosen: string | null) => {
      setError(undefined)
      try {
        const body = { slug: page.slug, ...(chosen === null ? {} : { amount: chosen }) }
        const started = chosen === null ? await startedOf(page) : undefined
        const { sessionId } =
          started === undefined ? await post<{ sessionId: string }>("/api/pay/sessions", body) : { sessionId: started }
        remember(keyOf(page), { sessionId })
        // The checkout replaces this page in the history, so a reload starts no second one.
        location.replace(`/pay/${sessionId}?lang=${page.lang}`)
      } catch (fault) {
        setError(fault as Error)
      }
    },
    [page],
  )
  useEffect(() => (page.amount === null ? undefined : whenShown(() => void start(null))), [page, start])
  const submit = (event: Event) => {
    event.preventDefault()
    const text = amountTyped(amount)
    if (text === undefined) return setError(new Refusal("BAD_AMOUNT", ""))
    void start(text)
  }
  const isBadAmount = error instanceof Refusal && error.code === "BAD_AMOUNT"
  const problem =
    error && (isBadAmount ? t("linkAmountInvalid") : problemMessage(t, error, { symbol, merchant: page.merchant }))
  return (
    <Card
      page={page}
      head={
        <>
          <h1 class="state">
            <bdi>{page.title}</bdi>
          </h1>
          <What text={page.description} />
          {page.amount !== null && <Amount unit={page.token.symbol} amount={page.amount} />}
        </>
      }
    >
      {page.amount === null ? (
        <form class="stack" onSubmit={submit} noValidate>
          <Field
            id="amount"
            class="money"
            inputMode="decimal"
            label={t("linkAmount", { symbol })}
            value={amount}
            change={setAmount}
            fault={problem}
            announce
          />
          <button type="submit" class="primary">
            {t("continue")}
          </button>
        </form>
      ) : problem ? (
        <>
          <p class="note bad" role="alert">
            {problem}
          </p>
          <button type="button" class="primary" onClick={() => start(null)}>
            {t("tryAgain")}
          </button>
        </>
      ) : (
        <div class="stack center">
          <span class="spinner" aria-hidden="true" />
        </div>
      )}
    </Card>
  )
}
