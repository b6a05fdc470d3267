/** What a wallet is asked to sign, in words, and which wallet signs it. */
import { Button, Modal } from "@mantine/core"
import { useState } from "react"
import { askedNow } from "../api/asked.ts"
import type { TypedData } from "../api/failure.ts"
import { accountOf, signData, signersHere, type Wallet, walletWords } from "../api/wallet.ts"

const hidden = new Set(["nonce", "expiresAt", "deadline", "service", "merchant", "deposit"])

export default function WalletDialog() {
  const asked = askedNow.use()
  const [fault, setFault] = useState("")
  const [isBusy, setBusy] = useState(false)
  const sign = async (wallet: Wallet) => {
    if (!asked) return
    setBusy(true)
    setFault("")
    try {
      const account = await accountOf(wallet)
      const signatures = []
      for (const data of asked.data) signatures.push(await signData(wallet, account, data))
      asked.answer(signatures)
    } catch (error) {
      setFault(walletWords(error))
    }
    setBusy(false)
  }
  const wallets = asked ? signersHere() : []
  return (
    <Modal
      opened={asked !== undefined}
      onClose={() => asked?.refuse()}
      title={asked?.kind === "return" ? "Sign the return with your wallet" : "Sign this change with your wallet"}
    >
      <div className="stack">
        <p className="second">
          {asked?.kind === "return"
            ? "Only this signature lets the money leave its receiving address. The signature costs no fee."
            : "The wallet lock is on: changes of where money goes need your payout wallet's signature, which costs no fee."}
        </p>
        {asked?.data.map((data, i) => (
          <Words key={i} data={data} />
        ))}
        {wallets.length === 0 && (
          <p className="note wait">
            This browser has no wallet. Open the console in a browser that has your payout wallet.
          </p>
        )}
        {fault && (
          <p className="bad" role="alert">
            {fault}
          </p>
        )}
        <div className="row end">
          <Button onClick={() => asked?.refuse()}>Do not sign</Button>
          {wallets.map(wallet => (
            <Button key={wallet.info.uuid} variant="filled" loading={isBusy} onClick={() => sign(wallet)}>
              Sign with {wallet.info.name}
            </Button>
          ))}
        </div>
      </div>
    </Modal>
  )
}

function Words({ data }: { data: TypedData }) {
  return (
    <dl className="facts card pad">
      {Object.entries(data.message)
        .filter(([name]) => !hidden.has(name))
        .map(([name, value]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{name.replace(/^./, first => first.toUpperCase())}</dt>
            <dd className={String(value).startsWith("0x") ? "mono" : ""}>{String(value)}</dd>
          </div>
        ))}
    </dl>
  )
}
