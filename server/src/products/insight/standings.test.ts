// Why each thing stands as it does, and what can be done: a sentence for each state that the schema allows.
import { readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { cases } from "../../../test/standing-cases.ts"
import { accessOf } from "../../platform/http/route-access.ts"

const schema = readFileSync(new URL("../../platform/db/schema.sql", import.meta.url), "utf8")

/** The values that a constraint of the schema allows. */
function valuesOf(constraint: string): string[] {
  const line = schema.split("\n").find(text => text.includes(`constraint ${constraint} check`))
  const values = [...(line ?? "").matchAll(/'([a-z_]+)'::text/g)].map(([, value]) => value ?? "")
  if (values.length === 0) throw new Error(`the schema has no list of values in ${constraint}`)
  return values
}

const names = Object.keys(cases)
/** The states that cases of a kind have, or those of what follows the comma. */
const statesOf = (kind: string): string[] =>
  names.filter(name => name.startsWith(`${kind} `)).map(name => name.slice(kind.length + 1).split(",")[0] ?? "")

describe("each state that the schema allows has its sentence", () => {
  it.each([
    ["checkout", "checkout_sessions_status_check"],
    ["payout", "payouts_state_check"],
    ["refund", "refunds_status_check"],
    ["subscription", "subscriptions_status_check"],
  ])("of a %s", (kind, constraint) => {
    expect(valuesOf(constraint).filter(state => !statesOf(kind).includes(state))).toEqual([])
  })

  it("of a payment, and of an open one each reason", () => {
    expect(
      valuesOf("payments_status_check").filter(state => !statesOf("payment").some(each => each.startsWith(state))),
    ).toEqual([])
    const open = valuesOf("payments_exception_check").map(exception => `payment open ${exception}`)
    expect(open.filter(name => !names.includes(name))).toEqual([])
  })

  it.each([
    ["payout held", "payouts_held_reason_check"],
    ["payout final", "payouts_kind_check"],
    ["checkout expired", "checkout_sessions_exception_check"],
    ["subscription canceled", "subscriptions_cancel_reason_check"],
    ["subscription active, blocked by", "subscriptions_blocked_by_check"],
  ])("of a %s each reason or kind", (begin, constraint) => {
    const all = valuesOf(constraint).filter(
      value => !names.some(name => name.startsWith(begin) && name.endsWith(` ${value}`)),
    )
    expect(all).toEqual([])
  })

  it("of an event each result of its deliveries", () => {
    expect(valuesOf("deliveries_status_check").filter(state => !statesOf("event").includes(state))).toEqual([])
  })
})

describe.each(Object.entries(cases))("%s", (_name, { why, word, next }) => {
  it("says why, and what can be done", () => {
    expect(word).toMatch(/^[A-Z][a-z, ]+$/)
    expect(why).toMatch(/^[A-Z0-9h].*\.$/)
    expect(`${why} ${next.map(({ text }) => text).join(" ")}`).not.toMatch(/undefined|null|NaN|\.\.|\s\s/)
    expect(next.length).toBeGreaterThan(0)
    for (const { text } of next) expect(text).toMatch(/^[A-Z].*(\.|https:\S+)$/)
  })

  it("leads to routes that exist", () => {
    for (const { route } of next) {
      if (route === null) continue
      const [method = "", path = ""] = route.split(" ")
      const pattern = path.replaceAll(/\/(?:pay|cs|po|re|sub|inv|dlv)_\w+/g, "/:id")
      expect(accessOf(method, pattern), route).toBeDefined()
    }
  })
})

it("stands in standings.txt, so that whoever changes a sentence reads it as a merchant would", async () => {
  const text = Object.entries(cases).map(([name, { word, why, next }]) => {
    const actions = next.map(({ text, route }) => `  - ${text}${route === null ? "" : ` [${route}]`}`)
    return [`${name}: ${word}`, `  ${why}`, ...actions].join("\n")
  })
  await expect(`${text.join("\n\n")}\n`).toMatchFileSnapshot("standings.txt")
})
