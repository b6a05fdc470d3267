/** Prices tools of an MCP server over HTTP. A call of a priced tool must be paid; everything else is free. */

import { add } from "../money.ts"
import type { ChargeRules } from "./charge.ts"
import { type Asked, type Handled, isGood } from "./gate.ts"

/** The price of each tool that is not free, in whole tokens. */
export type ToolPrices = Record<string, string>

interface Message {
  method?: unknown
  params?: { name?: unknown }
  error?: unknown
  result?: { isError?: unknown }
}

/** The rules: a batch costs the sum of its calls, and a tool that returns an error is not charged. */
export const toolRules = (prices: ToolPrices): ChargeRules => ({
  price: async (asked: Asked) => {
    if (asked.method !== "POST") return undefined
    const body = await asked.body()
    // Not free, because the handler may be able to read what could not be read here.
    if (typeof body !== "object" || body === null)
      throw new TypeError("charge.mcp needs the parsed JSON body: in Express, use express.json() before it.")
    const calls = messagesOf(body).filter(({ method }) => method === "tools/call")
    const due = calls.flatMap(({ params }) => {
      const name = `${params?.name}`
      return Object.hasOwn(prices, name) ? [`${prices[name]}`] : []
    })
    return due.length === 0 ? undefined : add(...due)
  },
  isServed: (handled: Handled) => {
    if (!isGood(handled.status)) return false
    const answers = answersOf(new TextDecoder().decode(handled.body ?? new Uint8Array()))
    return answers.length > 0 && answers.every(({ error, result }) => !error && result !== undefined && !result.isError)
  },
})

const messagesOf = (body: unknown): Message[] =>
  [body].flat().filter(message => typeof message === "object" && message !== null) as Message[]

/** The responses in an answer, which is JSON or a stream of events. */
function answersOf(text: string): Message[] {
  const parts = /^\s*[[{]/.test(text) ? [text] : [...text.matchAll(/^data: ?(.*)$/gm)].map(([, data = ""]) => data)
  return parts.flatMap(part => {
    try {
      return messagesOf(JSON.parse(part)).filter(({ method }) => method === undefined)
    } catch {
      return [{ error: "unreadable" }]
    }
  })
}
