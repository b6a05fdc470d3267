/** What a tool is, in the table of tools. */
import type { TSchema } from "typebox"

/** What a tool asks of the API, as its route is written in the table of routes. */
export type ToolRoute = `${"GET" | "POST"} /${string}`

/** The input of a tool, which was checked against its schema: only its own fields are there. */
// biome-ignore lint/suspicious/noExplicitAny: what each field is, the schema says.
export type Input = Record<string, any>

/** A request to the API with the caller's own key; throws a {@link Refusal} for what is no success. */
export type CallApi = (
  method: "GET" | "POST",
  path: string,
  more?: { query?: object; body?: object; idempotencyKey?: string; isAgreed?: boolean },
  // biome-ignore lint/suspicious/noExplicitAny: the answers of the API's routes, which are checked against its document.
) => Promise<any>

/** Why a tool did nothing, in sentences for the assistant. */
export class Refusal extends Error {}

/** What a tool answers: a sentence that nobody but this service wrote, and the API's answer. */
export interface Found {
  sentence: string
  result: object
}

export interface Tool {
  title: string
  /** What it does and when to use it, for the assistant. */
  does: string
  /** `reads` alone is there without `--write`; `money` needs a key whose spending has a cap. */
  kind: "reads" | "makes" | "money"
  /** The routes that it asks: a key that can't call each does not see the tool. */
  asks: readonly [ToolRoute, ...ToolRoute[]]
  input: TSchema
  /** The answer that `result` is, by its route; undefined for the service's own text. */
  answers: ToolRoute | undefined
  run(call: CallApi, input: Input): Promise<Found>
}
