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
      <PageHead title="Where money goes" request={{ path }} of={query} />
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

const isLive = facts.mode === "live"
const waitWords = isLive
  ? "A change takes effect after 24 hours, so that someone who got into your account can't take your money immediately. With the wallet lock on, a change that the replaced wallet signs takes effect immediately."
  : "Here a change takes effect immediately. In live mode it takes effect after 24 hours, unless the replaced wallet signs it."

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
        isChange
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
      {!isFirst && <p className="quiet">{waitWords}</p>}
    </section>
  )
}

function Lock({ settings: { walletLock } }: Given) {
  const may = useRight("payouts")
  const change = useAct({ done: walletLock ? "The lock is off" : "The lock is on" })
  const toggle = async () => {
    const words = walletLock
      ? "Anyone who is signed in as an owner can then change where money goes without the wallet."
      : "From then on, your payout wallet must sign each change of where money goes. If you lose that wallet, the payout address can no longer be changed here, and the lock can't be switched off."
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
  return (
    <section className="card pad stack" aria-label="Who approves returns">
      <h2>Who approves returns</h2>
      <RequestForm<{ approver: string }, Settings>
        key={approver}
        first={{ approver }}
        right="payouts"
        isChange
        submit="Save"
        done="It applies to receiving addresses created from now on"
        request={body => ({ method: "PUT", path, body })}
        fields={form =>
          approvers.map(([value, name, words]) => (
            <label key={value} className="pick-one" data-on={value === form.values.approver || undefined}>
              <input
                type="radio"
                name="approver"
                checked={value === form.values.approver}
                onChange={() => form.setFieldValue("approver", value)}
              />
              <span>
                <span className="strong">{name}</span>
                <br />
                <span className="quiet">{words}</span>
              </span>
            </label>
          ))
        }
      />
    </section>
  )
}
