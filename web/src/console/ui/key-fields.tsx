/** The fields of an API key: its name, what it may do, how long, from where, and how much. */
import { Checkbox, TextInput } from "@mantine/core"
import type { ReactNode } from "react"
import type { ApiKey } from "../api/types.ts"
import { given } from "./form.tsx"

type Scope = ApiKey["scopes"][number]

/** What each scope opens, in the words of whoever gives it. */
const scopeWords: Record<Scope, string> = {
  checkouts: "Take payments: checkouts, and the calls of paywalls",
  read: "Read everything but settings, keys and secrets",
  catalog: "Change what is sold: links, products, paywalls, APIs",
  webhooks: "Change endpoints, send events again",
  money: "Send money: accept, return, refund, capture",
  "settings:read": "Read the settings",
  console: "All of the above but settings, and splits too: for your own back office",
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
  const sends = scopes.some(scope => scope === "money" || scope === "console")
  return {
    name: name.trim(),
    scopes,
    allowedIps: ips.length > 0 ? ips : null,
    ...(sends ? { limits: { refundPerDay: limit(refundPerDay), returnPerDay: limit(returnPerDay) } } : {}),
  }
}

interface Given {
  values: KeyValues
  // biome-ignore lint/suspicious/noExplicitAny: it is what Mantine's form gives to an input.
  propsOf: (name: string) => any
  isNew?: boolean
  /** How long the key lasts, which is asked differently of a new one. */
  children: ReactNode
}

export function KeyFields({ values, propsOf, isNew = false, children }: Given) {
  const sends = values.scopes.some(scope => scope === "money" || scope === "console")
  return (
    <>
      <TextInput label="Name" placeholder="The shop's server" autoFocus={isNew} {...propsOf("name")} />
      <Checkbox.Group label="It may" {...propsOf("scopes")}>
        <div className="stack tight" style={{ paddingTop: 4 }}>
          {Object.entries(scopeWords).map(([scope, words]) => (
            <Checkbox key={scope} value={scope} size="xs" label={words} />
          ))}
        </div>
      </Checkbox.Group>
      {sends && <Limits propsOf={propsOf} />}
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

/** How much may go out by a key in 24 hours; left empty, as much as there is. */
export function Limits({ propsOf }: Pick<Given, "propsOf">) {
  const common = {
    description: "Whole tokens in 24 hours",
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
