/** A payment link: starts a checkout of this visitor's own, and asks for the amount where the link leaves it open. */
import { useCallback, useEffect, useState } from "preact/hooks"
import type { LinkPage } from "../page-data.ts"
import { useWords } from "../ui/context.ts"
import { post, Refusal } from "./api.ts"
import { problemWords } from "./problems.ts"

/** The card of a link; with a fixed amount it goes on by itself. */
export function Link({ page }: { page: LinkPage }) {
  const { t, local } = useWords()
  const [amount, setAmount] = useState("")
  const [error, setError] = useState<Error>()
  const { symbol } = page.token
  const start = useCallback(
    async (chosen: string | null) => {
      setError(undefined)
      try {
        const body = { slug: page.slug, ...(chosen === null ? {} : { amount: chosen }) }
        const { sessionId } = await post<{ sessionId: string }>("/api/pay/sessions", body)
        // In its place: the checkout is in the address from now on, and a reload starts no other.
        location.replace(`/pay/${sessionId}?lang=${page.lang}`)
      } catch (fault) {
        setError(fault as Error)
      }
    },
    [page],
  )
  useEffect(() => {
    if (page.amount !== null) void start(null)
  }, [page, start])
  const submit = (event: Event) => {
    event.preventDefault()
    const text = amount.trim().replace(",", ".")
    if (!/^\d{1,7}(\.\d+)?$/.test(text) || !/[1-9]/.test(text)) return setError(new Refusal("BAD_AMOUNT", ""))
    void start(text)
  }
  const isBadAmount = error instanceof Refusal && error.code === "BAD_AMOUNT"
  const problem =
    error && (isBadAmount ? t("linkAmountInvalid") : problemWords(t, error, { symbol, merchant: page.merchant }))
  return (
    <div class="card">
      {page.sandbox && <p class="test">{t("testMode")}</p>}
      <header class="head">
        <p class="merchant">
          <bdi>{page.merchant}</bdi>
        </p>
        <h1 class="state">
          <bdi>{page.title}</bdi>
        </h1>
        {page.description && (
          <p class="what">
            <bdi>{page.description}</bdi>
          </p>
        )}
        {page.amount !== null && (
          <p class="amount">
            <span class="number">{local(page.amount)}</span> <span class="unit">{symbol}</span>
          </p>
        )}
      </header>
      {page.amount === null ? (
        <form class="stack" onSubmit={submit} noValidate>
          <div class="field">
            <label for="amount">{t("linkAmount", { symbol })}</label>
            <input
              id="amount"
              class="money"
              inputMode="decimal"
              autocomplete="off"
              value={amount}
              aria-invalid={error !== undefined}
              aria-describedby={error ? "amount-fault" : undefined}
              onInput={event => setAmount(event.currentTarget.value)}
            />
            {problem && (
              <p class="fault" id="amount-fault" role="alert">
                {problem}
              </p>
            )}
          </div>
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
    </div>
  )
}
