/** The form of a tool in the table of tools. */
import type { TSchema } from "typebox"

/** A route that a tool calls, written as in the table of routes. */
export type ToolRoute = `${"GET" | "POST"} /${string}`

/** The input of a tool, already checked against the tool's schema, so it has only known fields. */
// biome-ignore lint/suspicious/noExplicitAny: the schema says what each field is.
export type Input = Record<string, any>

/** Sends a request to the API with the caller's own key; throws a {@link Refusal} if the request does not succeed. */
export type CallApi = (
  method: "GET" | "POST",
  path: string,
  more?: { query?: object; body?: object; idempotencyKey?: string; isAgreed?: boolean },
  // biome-ignore lint/suspicious/noExplicitAny: the API's answers, which are checked against the API's document.
) => Promise<any>

/** Why a tool did nothing, in sentences for the assistant. */
export class Refusal extends Error {}

/** What a tool returns: a sentence that only this service wrote, and the API's answer. */
export interface Found {
  sentence: string
  result: object
}

export interface Tool {
  title: string
  /** What the tool does and when to use it, in words for the assistant. */
  does: string
  /** Without `--write`, only tools that `reads` are offered. `money` needs a key whose spending has a cap. */
  kind: "reads" | "makes" | "money"
  /** The routes that the tool calls. A key that can't call all of them does not see the tool. */
  asks: readonly [ToolRoute, ...ToolRoute[]]
  input: TSchema
  /** The route whose answer `result` is; undefined for the service's own text. */
  answers: ToolRoute | undefined
  run(call: CallApi, input: Input): Promise<Found>
}
