/** The session ended while a page was open: the sign-in comes over the page, which keeps what was typed. */
import { Button, Modal } from "@mantine/core"
import { useQueryClient } from "@tanstack/react-query"
import { useEffect, useState } from "react"
import { signedOut, write } from "../api/client.ts"
import { facts } from "../api/facts.ts"
import { failureOf } from "../api/failure.ts"
import { accountOf, signMessage, walletsHere, walletWords } from "../api/wallet.ts"

const SECOND_TRY_MS = 2_000

export default function SignedOutDialog() {
  const isOut = signedOut.use()
  const queries = useQueryClient()
  const [fault, setFault] = useState("")
  const back = async (begin: () => Promise<unknown>) => {
    setFault("")
    try {
      await begin()
      signedOut.set(false)
      await queries.invalidateQueries()
    } catch (error) {
      setFault(failureOf(error).message)
    }
  }
  // The provider's sign-in is in another tab; this one notices.
  useEffect(() => {
    if (!isOut) return
    const look = setInterval(async () => {
      const { ok } = await fetch("/api/console/me").catch(() => ({ ok: false }))
      if (ok) await back(async () => undefined)
    }, SECOND_TRY_MS * 2)
    return () => clearInterval(look)
  })
  const { ways, merchants, provider } = facts.signIn
  return (
    <Modal opened={isOut} onClose={() => undefined} withCloseButton={false} title="You were signed out" size="sm">
      <div className="stack">
        <p className="second">Sign in again to continue. What you typed stays on the page behind this dialog.</p>
        {ways.includes("provider") && (
          <Button
            variant="filled"
            component="a"
            href="/console/sign-in?return=%2Fconsole%2Fsigned-in"
            target="_blank"
            rel="opener"
          >
            Sign in with {provider}
          </Button>
        )}
        {merchants.map(({ id, name }, i) => (
          <Button
            key={id}
            variant={i === 0 && !ways.includes("provider") ? "filled" : "default"}
            onClick={() => back(() => write("POST", "/api/console/session", { merchantId: id }))}
          >
            Sign in as {name}
          </Button>
        ))}
        <Button onClick={() => back(signInByWallet)}>Sign in with a wallet</Button>
        {fault && (
          <p className="bad" role="alert">
            {fault}
          </p>
        )}
      </div>
    </Modal>
  )
}

async function signInByWallet(): Promise<void> {
  const [wallet] = walletsHere()
  if (!wallet) throw new Error("This browser has no wallet.")
  const offer = await write<{ message: string }>("POST", "/api/auth/nonce", {})
  try {
    const account = await accountOf(wallet)
    const message = offer.message.replace("{address}", account)
    await write("POST", "/api/console/session", { message, signature: await signMessage(wallet, account, message) })
  } catch (error) {
    throw new Error(walletWords(error))
  }
}
