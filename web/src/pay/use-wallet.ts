/** Pays with a browser wallet, step by step: connect, network, balance, signature or transfer, and then the server. */
import { useCallback, useRef, useState } from "preact/hooks"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { fromUnits, toUnits } from "../ui/amounts.ts"
import { post, Refusal } from "./api.ts"
import { recall, remember } from "./store.ts"
import {
  accountOf,
  type Due,
  hasGas,
  isOnNetwork,
  newNonce,
  sendTransfer,
  signAuthorization,
  switchTo,
  tokenBalance,
  WalletFault,
} from "./wallet-calls.ts"
import type { Wallet } from "./wallets.ts"

/** signature: the service sends the payment and pays the fee. transfer: the wallet does both. */
export type Way = "signature" | "transfer"

/** The current step of a payment with a wallet. */
type Step =
  | { at: "idle" }
  | { at: "connecting" }
  | { at: "network" }
  | { at: "lowToken"; balance: string; missing: string }
  | { at: "lowGas" }
  | { at: "confirm"; way: Way; amount: string }
  | { at: "submitting" }
  | { at: "problem"; error: Error }

const IDLE: Step = { at: "idle" }
/** How long an attempt waits for the page to know its state again: half a minute in total. */
const PAUSE_MS = 250
const MAX_PAUSES = 120

interface Options {
  page: PayPage
  status: CheckoutStatus
  /** Whether the payer is asked for money now. */
  payable: boolean
  /** Called when the browser's memory of the payment has changed. */
  changed: () => void
}

export interface Paying {
  step: Step
  wallet: Wallet | undefined
  account: string | undefined
  way: Way
  pay: (wallet: Wallet, way: Way) => Promise<void>
  /** Continues with the same wallet. */
  again: (way?: Way) => Promise<void>
  changeNetwork: () => Promise<void>
  askFaucet: () => Promise<void>
  cancel: () => void
  /** Whether the wallet was asked for money and has not answered, even for an attempt that was given up. */
  isAsked: boolean
}

/** One attempt to pay. */
interface Attempt {
  /** Whether the attempt is still on, and the payment can be made now. It waits while that is unknown. */
  isOn: () => Promise<boolean>
  /** Whether the attempt is still on. */
  isLast: () => boolean
  show: (step: Step) => void
}

/** The payment with a wallet, and the possible next actions. */
export function useWallet({ page, status, payable, changed }: Options): Paying {
  const [step, setStep] = useState<Step>(IDLE)
  const [wallet, setWallet] = useState<Wallet>()
  const [account, setAccount] = useState<string>()
  const [way, setWay] = useState<Way>("signature")
  const [open, setOpen] = useState(0)
  /** Each attempt has a number. Results of an older attempt are not shown. */
  const tries = useRef(0)
  const now = useRef({ page, status, payable })
  now.current = { page, status, payable }

  /** Runs a request for money, and counts it until the wallet has answered, even if the attempt was given up. */
  const asking = async <T>(request: () => Promise<T>): Promise<T> => {
    setOpen(n => n + 1)
    try {
      return await request()
    } finally {
      setOpen(n => n - 1)
    }
  }

  const attempt = async (work: (mine: Attempt) => Promise<void>): Promise<void> => {
    const number = ++tries.current
    const isLast = () => number === tries.current
    const isOn = async () => {
      // Waits for a state that is briefly unknown, for example after a phone has shown its wallet.
      for (let n = 0; n < MAX_PAUSES && isLast() && !now.current.payable; n++)
        await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
      if (!isLast()) return false
      if (!now.current.payable) setStep(IDLE)
      return now.current.payable
    }
    const show = (next: Step) => {
      if (isLast()) setStep(next)
    }
    try {
      await work({ isOn, isLast, show })
    } catch (error) {
      show({ at: "problem", error: error as Error })
    }
  }

  const pay = (chosen: Wallet, wanted: Way): Promise<void> => {
    setWallet(chosen)
    setWay(wanted)
    return attempt(async mine => {
      const { show } = mine
      const { provider } = chosen
      const { page } = now.current
      show({ at: "connecting" })
      // A wallet may take minutes for each answer. Once the attempt is given up, it gets no more requests.
      const from = await accountOf(provider)
      if (!(await mine.isOn())) return
      setAccount(from)
      if (!(await isOnNetwork(provider, page.network))) return show({ at: "network" })
      const balance = await tokenBalance(provider, page.token, from)
      const isPoor = wanted === "transfer" && !(await hasGas(provider, from))
      // Once more: a wallet can be switched to another network at any time.
      const isRight = await isOnNetwork(provider, page.network)
      if (!(await mine.isOn())) return
      if (!isRight) return show({ at: "network" })
      const due = dueOf(page, now.current.status)
      const { decimals } = page.token
      if (balance < due.value)
        return show({
          at: "lowToken",
          balance: fromUnits(balance, decimals),
          missing: fromUnits(due.value - balance, decimals),
        })
      if (isPoor) return show({ at: "lowGas" })
      show({ at: "confirm", way: wanted, amount: fromUnits(due.value, decimals) })
      if (wanted === "signature") await bySignature(mine, chosen, from, due)
      else await byTransfer(mine, chosen, from, due)
    })
  }

  const bySignature = async (mine: Attempt, chosen: Wallet, from: string, due: Due) => {
    const { sessionId } = now.current.status
    const terms = termsFor(now.current.status, from, due)
    const signed = await asking(() => signAuthorization(chosen.provider, from, due, terms))
    // The attempt was given up, so its signature is not used. While the page knows nothing, the server decides.
    if (!mine.isLast()) return
    mine.show({ at: "submitting" })
    try {
      await post("/api/pay/authorize", { sessionId, ...signed })
      remember(sessionId, { signedAt: undefined })
    } catch (error) {
      // It may have been accepted. Until that is known, only the same authorization may be signed again. A clear
      // refusal of the repeat, such as too many requests, says nothing about the first try.
      if (error instanceof Refusal && error.isUnsure) remember(sessionId, { signedAt: Date.now() })
      // Its nonce can't move money any more, so the next attempt uses another one.
      if (error instanceof Refusal && error.code === "AUTHORIZATION_ALREADY_USED") remember(sessionId, { nonces: {} })
      throw error
    } finally {
      changed()
    }
  }

  const byTransfer = async (mine: Attempt, chosen: Wallet, from: string, due: Due) => {
    const { sessionId } = now.current.status
    const sendingAt = Date.now()
    remember(sessionId, { sendingAt, givenUpAt: undefined })
    changed()
    /** Another request may have been made since then, whose answer has not come yet. */
    const answered = () => (recall(sessionId).sendingAt === sendingAt ? { sendingAt: undefined } : {})
    try {
      const txHash = await asking(() => sendTransfer(chosen.provider, from, due))
      // Also if the attempt was given up: the money is on its way. `use-submission.ts` submits the hash.
      remember(sessionId, { txHash, payer: from, sentAt: Date.now(), ...answered() })
      mine.show({ at: "submitting" })
    } catch (error) {
      // Only a refusal by the user proves that nothing was sent.
      if (error instanceof WalletFault && error.kind === "rejected") remember(sessionId, answered())
      throw error
    } finally {
      changed()
    }
  }

  const cancel = useCallback(() => {
    tries.current++
    setStep(IDLE)
  }, [])
  const again = async (wanted: Way = way) => {
    if (wallet) await pay(wallet, wanted)
  }
  return {
    step,
    wallet,
    account,
    way,
    pay,
    again,
    changeNetwork: async () => {
      if (!wallet) return
      await attempt(async mine => {
        await switchTo(wallet.provider, page.network)
        if (await mine.isOn()) await pay(wallet, way)
      })
    },
    askFaucet: async () => {
      await attempt(async mine => {
        mine.show({ at: "connecting" })
        await post("/sandbox/faucet", { address: account })
        if (wallet && (await mine.isOn())) await pay(wallet, way)
      })
    },
    cancel,
    isAsked: open > 0,
  }
}

function dueOf({ token, network }: PayPage, status: CheckoutStatus): Due {
  const { chainId } = network
  const terms = status.reservation?.terms
  if (terms) return { token, chainId, payTo: terms.to, value: BigInt(terms.value) }
  if (status.payTo === undefined) throw new Refusal("PAYMENTS_PAUSED", "Payments are paused.")
  return { token, chainId, payTo: status.payTo, value: toUnits(status.missing, token.decimals) }
}

/**
 * The other fields of an authorization. A reservation's nonce is computed from its terms, so every payer signs the same
 * nonce.
 */
function termsFor({ sessionId, expiresAt, reservation }: CheckoutStatus, from: string, { value }: Due) {
  if (reservation?.terms) return reservation.terms
  return {
    primaryType: "TransferWithAuthorization" as const,
    nonce: nonceFor(sessionId, from, value),
    validBefore: String(Math.floor(Date.parse(expiresAt) / 1_000)),
  }
}

/** The nonce of this payer's authorization of this amount: the same after a reload and in another tab. */
function nonceFor(sessionId: string, from: string, value: bigint): string {
  const { nonces = {} } = recall(sessionId)
  const key = `${from.toLowerCase()} ${value}`
  const nonce = nonces[key] ?? newNonce()
  remember(sessionId, { nonces: { ...nonces, [key]: nonce } })
  return nonce
}
