/** A subscriber's page: a wallet signs in, sees its subscriptions, pays due invoices, and cancels. */
import { useEffect, useRef, useState } from "preact/hooks"
import type { SubscriptionsPage } from "../page-data.ts"
import { Refusal } from "../pay/api.ts"
import { problemMessage } from "../pay/problems.ts"
import { useWallets, type Wallet } from "../pay/wallets.ts"
import { short } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { listOf, PAGE, type Session, type Subscription, signIn } from "./calls.ts"
import { Item } from "./item.tsx"

/** The whole page. */
export function Subscriptions({ page }: { page: SubscriptionsPage }) {
  const { t } = useWords()
  const [session, setSession] = useState<Session>()
  const [list, setList] = useState<{ data: Subscription[]; total: number }>()
  const [problem, setProblem] = useState("")
  const fail = (error: unknown) => {
    if (error instanceof Refusal && error.code === "UNAUTHORIZED") {
      setSession(undefined)
      setList(undefined)
      setProblem(t("signInAgain"))
    } else setProblem(problemMessage(t, error as Error, {}))
  }
  const load = async (by: Session, known: Subscription[]) => {
    setProblem("")
    try {
      const more = await listOf(by, known.length)
      // A subscription that started meanwhile has shifted the others.
      const fresh = more.data.filter(({ id }) => !known.some(each => each.id === id))
      setList({ data: [...known, ...fresh], total: more.total })
    } catch (error) {
      fail(error)
    }
  }
  const enter = async (wallet: Wallet) => {
    setProblem("")
    try {
      const entered = await signIn(wallet)
      setSession(entered)
      await load(entered, [])
    } catch (error) {
      fail(error)
    }
  }
  const leave = () => {
    setSession(undefined)
    setList(undefined)
    setProblem("")
  }
  return (
    <div class="card">
      {page.sandbox && <p class="test">{t("testMode")}</p>}
      <header class="head">
        <h1 class="state">{t("subscriptions")}</h1>
        {session && (
          <p class="quiet">
            <bdi>{t("signedInAs", { address: short(session.address) })}</bdi>{" "}
            <button type="button" class="link" onClick={leave}>
              {t("otherWallet")}
            </button>
          </p>
        )}
      </header>
      {problem && (
        <p class="note bad" role="alert">
          {problem}
        </p>
      )}
      {!session && <SignIn sandbox={page.sandbox} enter={enter} />}
      {session && !list && !problem && (
        <div class="stack center">
          <span class="spinner" aria-hidden="true" />
        </div>
      )}
      {session && list && (
        <Listed
          session={session}
          list={list}
          change={changed =>
            setList({ ...list, data: list.data.map(each => (each.id === changed.id ? changed : each)) })
          }
          fail={fail}
          more={() => load(session, list.data)}
        />
      )}
    </div>
  )
}

function SignIn({ sandbox, enter }: { sandbox: boolean; enter: (wallet: Wallet) => void }) {
  const { t } = useWords()
  const wallets = useWallets(sandbox)
  return (
    <div class="stack">
      <p class="center">{t("subscriptionsWords")}</p>
      {wallets.length === 0 && <p class="note">{t("noWallet")}</p>}
      {wallets.map((wallet, i) => (
        <button key={wallet.id} type="button" class={i === 0 ? "primary" : "secondary"} onClick={() => enter(wallet)}>
          <bdi>{t("signInWith", { wallet: wallet.isTest ? t("testWallet") : wallet.name })}</bdi>
        </button>
      ))}
    </div>
  )
}

interface ListedProps {
  session: Session
  list: { data: Subscription[]; total: number }
  change: (changed: Subscription) => void
  fail: (error: unknown) => void
  more: () => void
}

function Listed({ session, list, change, fail, more }: ListedProps) {
  const { t } = useWords()
  const first = useRef<HTMLHeadingElement>(null)
  // The sign-in buttons are gone, and the focus with them.
  useEffect(() => first.current?.focus(), [])
  if (list.total === 0)
    return (
      <div class="live">
        <h2 class="state" tabIndex={-1} ref={first}>
          {t("noSubscriptions")}
        </h2>
        <p>{t("noSubscriptionsWords")}</p>
      </div>
    )
  return (
    <>
      <ul class="items">
        {list.data.map((each, i) => (
          <Item
            key={each.id}
            session={session}
            subscription={each}
            change={change}
            fail={fail}
            {...(i === 0 ? { heading: first } : {})}
          />
        ))}
      </ul>
      {list.data.length < list.total && list.data.length % PAGE === 0 && (
        <button type="button" class="secondary" onClick={more}>
          {t("showAll")}
        </button>
      )}
    </>
  )
}
