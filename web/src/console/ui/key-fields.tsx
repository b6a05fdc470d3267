/** The fields of an API key: its name, what it may do, how long, from where, and how much. */
import { Checkbox, TextInput } from "@mantine/core"
import type { ReactNode } from "react"
import { facts } from "../api/facts.ts"
import type { ApiKey } from "../api/types.ts"
import { given } from "./form.tsx"

type Scope = ApiKey["scopes"][number]

/** What the scope `console` opens too. */
export const inConsole: readonly Scope[] = ["read", "catalog", "webhooks", "money"]

/** What each scope opens, in the words of whoever gives it. */
const scopeWords: Record<Exclude<Scope, "console">, string> = {
  checkouts: "Take payments: checkouts, and the calls of paywalls",
  read: "Read everything but settings, keys and secrets",
  catalog: "Change what is sold: links, products, paywalls, APIs",
  webhooks: "Change endpoints, send events again",
  money: "Send money: accept, return, refund, capture",
  "settings:read": "Read the settings",
}

export interface KeyValues extends Record<string, unknown> {
  name: string
  scopes: string[]
  allowedIps: string
  refundPerDay: string
  returnPerDay: string
}

/** The fields as the API takes them; what was left empty is null. */
export const keyBody = ({ name, scopes, allowedIps, refundPerDay, returnPerDay }: KeyValues) => {
  const ips = allowedIps.split(/[\s,]+/).filter(Boolean)
  const limit = (text: string) => (given(text) === undefined ? null : Number(text))
  return {
    name: name.trim(),
    scopes,
    allowedIps: ips.length > 0 ? ips : null,
    ...(sendsMoney(scopes) ? { limits: { refundPerDay: limit(refundPerDay), returnPerDay: limit(returnPerDay) } } : {}),
  }
}

const sendsMoney = (scopes: string[]): boolean => scopes.includes("money") || scopes.includes("console")

interface Given {
  values: KeyValues
  // biome-ignore lint/suspicious/noExplicitAny: it is what Mantine's form gives to an input.
  propsOf: (name: string) => any
  isNew?: boolean
  /** How long the key lasts, which is asked differently of a new one. */
  children: ReactNode
}

export function KeyFields({ values, propsOf, isNew = false, children }: Given) {
  const isUnlimited = given(values.refundPerDay) === undefined && given(values.returnPerDay) === undefined
  return (
    <>
      <TextInput label="Name" placeholder="The shop's server" autoFocus={isNew} {...propsOf("name")} />
      <Scopes scopes={values.scopes} {...propsOf("scopes")} />
      {sendsMoney(values.scopes) && (
        <>
          {isUnlimited && (
            <p className="note wait" role="status">
              Whoever has this key can send your money. Set a limit for 24 hours.
            </p>
          )}
          <Limits propsOf={propsOf} />
        </>
      )}
      <div className="pair">
        {children}
        <TextInput
          label="Only from these addresses"
          description="IP addresses or ranges, separated by commas"
          placeholder="from anywhere"
          classNames={{ input: "mono" }}
          {...propsOf("allowedIps")}
        />
      </div>
    </>
  )
}

interface ScopesGiven {
  scopes: string[]
  onChange: (scopes: string[]) => void
  error?: ReactNode
}

const choices = [
  [false, "Only what I tick", "Each right by itself"],
  [true, "Everything except settings", "Includes sending money, and splits. API keys and the team stay closed."],
] as const

/** What a key may do: single scopes, or nearly all of them. */
function Scopes({ scopes, onChange, error }: ScopesGiven) {
  const isAll = scopes.includes("console")
  const set = (scope: string, is: boolean) =>
    onChange([...scopes.filter(each => each !== scope), ...(is ? [scope] : [])])
  // A server takes payments outside of what `console` opens.
  const choose = (all: boolean) =>
    all ? onChange([...new Set([...scopes, "checkouts", "console"])]) : set("console", false)
  return (
    <fieldset className="chipset stack tight">
      <legend className="legend">It may</legend>
      {choices.map(([all, name, words]) => (
        <label key={name} className="pick-one" data-on={all === isAll || undefined}>
          <input type="radio" name="scopes" checked={all === isAll} onChange={() => choose(all)} />
          <span>
            <span className="strong">{name}</span>
            <br />
            <span className="quiet">{words}</span>
          </span>
        </label>
      ))}
      {(Object.entries(scopeWords) as [Scope, string][]).map(([scope, words]) => {
        const isOpen = isAll && inConsole.includes(scope)
        return (
          <Checkbox
            key={scope}
            size="xs"
            label={words}
            checked={isOpen || scopes.includes(scope)}
            disabled={isOpen}
            onChange={({ currentTarget }) => set(scope, currentTarget.checked)}
          />
        )
      })}
      {error && <span className="bad">{error}</span>}
    </fieldset>
  )
}

const symbols = [...new Set(facts.networks.map(({ token }) => token.symbol))]
const unit = symbols.length === 1 ? symbols[0] : "tokens"

/** How much may go out by a key in 24 hours; left empty, as much as there is. */
export function Limits({ propsOf }: Pick<Given, "propsOf">) {
  const common = {
    description: `Whole ${unit} in 24 hours`,
    placeholder: "without a limit",
    inputMode: "numeric",
  } as const
  return (
    <div className="pair">
      <TextInput label="Refunds, at most" {...common} {...propsOf("refundPerDay")} />
      <TextInput label="Returns, at most" {...common} {...propsOf("returnPerDay")} />
    </div>
  )
}
