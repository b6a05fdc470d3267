/** Where the merchant's money goes: the payout address of each network, the wallet lock, who approves returns. */
import { Button, TextInput } from "@mantine/core"
import { facts } from "../api/facts.ts"
import { useRight } from "../api/me.ts"
import { settingsPath as path, useSettings } from "../api/settings.ts"
import type { Settings } from "../api/types.ts"
import { RequestForm } from "../ui/form.tsx"
import { PartNotYet } from "../ui/not-yet.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"

export function PayoutAddress() {
  const query = useSettings()
  const settings = query.data
  return (
    <>
      <PageHead title="Settings" request={{ path }} of={query} />
      <SettingsTabs />
      {!settings && <PartNotYet query={query} />}
      {settings && (
        <div className="two">
          <div className="stack">
            {facts.networks.map(each => (
              <AddressOf key={each.network} settings={settings} {...each} />
            ))}
          </div>
          <div className="stack">
            <Lock settings={settings} />
            <Approver settings={settings} />
          </div>
        </div>
      )}
    </>
  )
}

interface Given {
  settings: Settings
}

function AddressOf({ settings, network, title }: Given & { network: string; title: string }) {
  const now = (settings.payoutAddresses as Record<string, string | undefined>)[network] ?? ""
  const pending = settings.pendingPayoutAddresses[network] as { address?: string; effectiveAt?: string } | undefined
  const isFirst = now === ""
  const may = useRight("payouts")
  const keep = useAct({ done: "The current address stays" })
  return (
    <section className="card pad stack" aria-label={`Payout address on ${title}`}>
      <div className="row between">
        <h2>Payout address on {title}</h2>
        {isFirst ? <Status state="missing" /> : pending?.address ? <Status state="changing" /> : <Status state="on" />}
      </div>
      {pending?.address && (
        <div className="note wait" role="status">
          <div>
            It changes to <span className="mono">{pending.address}</span>{" "}
            {pending.effectiveAt && <Time at={pending.effectiveAt} />}. Was that not you? Keep the current address, and
            sign out the other browsers.
          </div>
          <Button
            size="xs"
            disabled={!may}
            loading={keep.isPending}
            onClick={() => keep.mutate({ method: "PUT", path, body: { payoutAddresses: { [network]: now } } })}
          >
            Keep the current one
          </Button>
        </div>
      )}
      <RequestForm
        key={now}
        first={{ address: now }}
        right="payouts"
        submit={isFirst ? "Save" : "Change it"}
        done={isFirst ? "Saved: payouts go there from now on" : "Saved"}
        request={({ address }) => ({ method: "PUT", path, body: { payoutAddresses: { [network]: address.trim() } } })}
        fields={form => (
          <TextInput
            label="Payout address"
            description="Use a wallet whose key you hold, never an exchange: only this key can empty your receiving addresses without us."
            placeholder="0x…"
            classNames={{ input: "mono" }}
            {...form.getInputProps("address")}
          />
        )}
      />
      {!isFirst && (
        <p className="quiet">
          A change takes effect after 24 hours, so that someone who got into your account can't take your money
          immediately. A change that the replaced wallet signs takes effect now.
        </p>
      )}
    </section>
  )
}

function Lock({ settings: { walletLock } }: Given) {
  const may = useRight("payouts")
  const change = useAct({ done: walletLock ? "The lock is off" : "The lock is on" })
  const toggle = async () => {
    const words = walletLock
      ? "Anyone who is signed in as an owner can then change where money goes, after 24 hours."
      : "From then on, your payout wallet must sign each change of where money goes. Without that wallet, nobody can make such a change, not even we."
    const title = walletLock ? "Switch the wallet lock off?" : "Switch the wallet lock on?"
    if (!(await isSure({ title, words, yes: walletLock ? "Switch off" : "Switch on" }))) return
    change.mutate({ method: "PUT", path, body: { walletLock: !walletLock } })
  }
  return (
    <section className="card pad stack" aria-label="Wallet lock">
      <div className="row between">
        <h2>Wallet lock</h2>
        <Status state={walletLock ? "on" : "off"} />
      </div>
      <p className="second">
        With the lock on, your payout wallet must sign changes to payout addresses and splits, and returns to an address
        that you name.
      </p>
      <div className="row">
        <Button disabled={!may} loading={change.isPending} onClick={toggle}>
          {walletLock ? "Switch off, with the wallet" : "Switch on, with the wallet"}
        </Button>
        {!may && <NoRight right="payouts" />}
      </div>
    </section>
  )
}

const approvers = [
  ["service", "This service", "A member decides, and the service sends the money back."],
  [
    "wallet",
    "Your payout wallet",
    "Your payout wallet must sign each return: the service alone can send nothing back.",
  ],
] as const

function Approver({ settings: { approver } }: Given) {
  const may = useRight("payouts")
  const change = useAct({ done: "It applies to receiving addresses created from now on" })
  return (
    <section className="card pad stack" aria-label="Who approves returns">
      <h2>Who approves returns</h2>
      {approvers.map(([value, name, words]) => (
        <label key={value} className="pick-one" data-on={value === approver || undefined}>
          <input
            type="radio"
            name="approver"
            checked={value === approver}
            disabled={!may || change.isPending}
            onChange={() => change.mutate({ method: "PUT", path, body: { approver: value } })}
          />
          <span>
            <span className="strong">{name}</span>
            <br />
            <span className="quiet">{words}</span>
          </span>
        </label>
      ))}
      {!may && <NoRight right="payouts" />}
    </section>
  )
}
