/** Pays with a wallet of this browser. */
import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { short } from "../ui/amounts.ts"
import { useWords } from "../ui/context.ts"
import { problemMessage } from "./problems.ts"
import type { Paying, Way } from "./use-wallet.ts"
import type { Wallet } from "./wallets.ts"

interface Props {
  page: PayPage
  status: CheckoutStatus
  wallets: Wallet[]
  paying: Paying
  way: Way
  /** Undefined if there is no other way. */
  setWay?: (way: Way) => void
}

/**
 * The wallets to choose from, or the current step of the payment with the chosen one. The button that started a step
 * disappears with it. So the focus moves to the step's words or, if there are none, to its first button.
 */
export function WalletWay(props: Props) {
  const { at } = props.paying.step
  const box = useRef<HTMLDivElement>(null)
  const before = useRef(at)
  useEffect(() => {
    if (before.current === at) return
    before.current = at
    box.current?.querySelector<HTMLElement>("[tabindex='-1'], button")?.focus()
  }, [at])
  return (
    <div ref={box}>
      <Current {...props} />
    </div>
  )
}

function Current(props: Props) {
  const { page, status, paying } = props
  const { t, local } = useWords()
  const { step, account } = paying
  const values = {
    symbol: page.token.symbol,
    network: page.network.title,
    native: "ETH",
    amount: local(status.missing),
  }
  const isChanged = step.at === "confirm" && step.amount !== status.missing && !status.reservation
  switch (step.at) {
    case "idle":
      return <Choice {...props} />
    case "connecting":
      return <Waiting title={t("connecting")} paying={paying} />
    case "confirm":
      return (
        <Waiting title={t("confirmInWallet")} paying={paying}>
          {isChanged ? (
            <p class="note bad" role="alert">
              {t("amountChanged", { ...values, amount: local(step.amount), missing: local(status.missing) })}
            </p>
          ) : (
            <p>
              {t(step.way === "signature" ? "confirmSign" : "confirmSend", { ...values, amount: local(step.amount) })}
            </p>
          )}
          {account && (
            <p class="quiet">
              {t("yourWallet", { address: "" })} <bdi>{short(account)}</bdi>
            </p>
          )}
        </Waiting>
      )
    case "submitting":
      return <Waiting title={t(status.reservation ? "reserving" : "sent")} />
    case "network":
      return (
        <Problem text={t("wrongNetwork", values)} paying={paying}>
          <button type="button" class="primary" onClick={paying.changeNetwork}>
            {t("switchNetwork", values)}
          </button>
        </Problem>
      )
    case "lowToken":
      return (
        <Problem
          text={t("lowToken", { ...values, balance: local(step.balance), missing: local(step.missing) })}
          paying={paying}
        >
          <Remedy {...props} />
        </Problem>
      )
    case "lowGas":
      return (
        <Problem text={t(status.gasless ? "lowGas" : "lowGasOnly", values)} paying={paying}>
          {status.gasless ? (
            <button type="button" class="primary" onClick={() => paying.again("signature")}>
              {t("useSignature")}
            </button>
          ) : (
            <Remedy {...props} />
          )}
        </Problem>
      )
    case "problem":
      return (
        <div class="stack">
          <p class="note bad" role="alert">
            {problemMessage(t, step.error, values, status.reservation !== undefined)}
          </p>
          <Choice {...props} />
        </div>
      )
  }
}

/** In a sandbox a button for test money; elsewhere another attempt, once the payer has some. */
function Remedy({ page, paying }: Props) {
  const { t } = useWords()
  return page.sandbox ? (
    <button type="button" class="primary" onClick={paying.askFaucet}>
      {t("faucet")}
    </button>
  ) : (
    <button type="button" class="primary" onClick={() => paying.again()}>
      {t("tryAgain")}
    </button>
  )
}

function Choice({ page, status, wallets, paying, way, setWay }: Props) {
  const { t } = useWords()
  const nameOf = (wallet: Wallet) => (wallet.isTest ? t("testWallet") : wallet.name)
  if (wallets.length === 0)
    return (
      <div class="stack">
        <p>
          <b>{t("noWallet")}</b>
        </p>
        <p class="quiet">
          {t(status.reservation ? "reserveNoWallet" : page.kind === "paywall" ? "ownWallet" : "noWalletHint")}
        </p>
      </div>
    )
  return (
    <div class="stack">
      {wallets.map((wallet, i) => (
        <button
          key={wallet.id}
          type="button"
          class={i === 0 ? "primary" : "secondary"}
          onClick={() => paying.pay(wallet, way)}
        >
          {wallet.icon && <img src={wallet.icon} alt="" width="24" height="24" />}
          <span>
            <bdi>{t("payWith", { wallet: nameOf(wallet) })}</bdi>
          </span>
        </button>
      ))}
      <p class="quiet center">
        {page.sandbox && wallets.length === 1 ? t("testWalletHint") : t(way === "signature" ? "noFee" : "youPayFee")}
      </p>
      {setWay && status.gasless && !status.reservation && (
        <button type="button" class="link" onClick={() => setWay(way === "signature" ? "transfer" : "signature")}>
          {t(way === "signature" ? "useTransfer" : "useSignature")}
        </button>
      )}
    </div>
  )
}

function Waiting({ title, paying, children }: { title: string; paying?: Paying; children?: ComponentChildren }) {
  const { t } = useWords()
  return (
    <div class="stack center">
      <span class="spinner" aria-hidden="true" />
      <h2 class="state" tabIndex={-1}>
        {title}
      </h2>
      {children}
      {paying && (
        <button type="button" class="link" onClick={paying.cancel}>
          {t("cancel")}
        </button>
      )}
    </div>
  )
}

function Problem({ text, paying, children }: { text: string; paying: Paying; children: ComponentChildren }) {
  const { t } = useWords()
  return (
    <div class="stack">
      <p class="note wait" tabIndex={-1}>
        {text}
      </p>
      {children}
      <button type="button" class="link" onClick={paying.cancel}>
        {t("chooseOther")}
      </button>
    </div>
  )
}
