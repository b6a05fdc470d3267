/** The tools that a caller has: those that its key can use, and what each does when it is called. */
import { Type } from "typebox"
import { Check, Errors } from "typebox/value"
import { isCapped } from "../../account/identity/count-key-spends.ts"
import { type Context, wallTime } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { ApiKey } from "../../platform/http/authenticate.ts"
import { accessOf } from "../../platform/http/route-access.ts"
import { openToken, tokenOf } from "./confirmation.ts"
import { type MoneyTool, moneyTools } from "./prepare-money.ts"
import { type CallApi, type Found, type Input, Refusal, type Tool, type ToolRoute } from "./tool.ts"
import { plainTools } from "./tools.ts"

/** A tool as one caller has it. */
export interface OpenTool extends Pick<Tool, "title" | "does" | "kind" | "input" | "answers"> {
  /**
   * Runs the tool. Throws a {@link Refusal} or an ApiError if nothing was done. `isAgreed`: whether a person was
   * asked and agreed.
   */
  run(input: Input, isAgreed: boolean): Promise<Found>
  /** The question to which a person must agree before the tool runs; undefined if nobody needs to be asked. */
  question?: (input: Input) => string
}

const MAX_FAULTS = 10

interface Caller {
  apiKey: ApiKey
  /** Whether the caller requested tools that change something. */
  writes: boolean
  call: CallApi
}

/** The caller's tools by name. */
export async function openTools(ctx: Context, caller: Caller): Promise<Record<string, OpenTool>> {
  const { apiKey, writes, call } = caller
  const plain = Object.entries(plainTools)
    .filter(([, tool]) => (writes || tool.kind === "reads") && tool.asks.every(route => isOpen(apiKey, route)))
    .map(([name, tool]) => [name, { ...tool, run: async input => await tool.run(call, input) }] as [string, OpenTool])
  // Without a cap, an assistant that obeys the text of a payer could send all the money back.
  const money = Object.entries(moneyTools).filter(([, { asks }]) => writes && isOpen(apiKey, asks))
  if (money.length === 0 || !(await isCapped(ctx, apiKey))) return Object.fromEntries(plain)
  const prepares = money.map(([name, tool]) => [name, preparing(ctx, apiKey, name, tool)] as const)
  return Object.fromEntries([...plain, ...prepares, ["confirm", confirming(ctx, caller)]])
}

/** Throws a {@link Refusal} that says what is wrong with the input of a tool. */
export function checkInput({ input: schema }: OpenTool, input: unknown): asserts input is Input {
  if (Check(schema, input)) return
  const faults = Errors(schema, input).map(
    ({ instancePath, message }) => `${instancePath.slice(1) || "The input"} ${message}.`,
  )
  throw new Refusal(`The input does not fit. ${faults.slice(0, MAX_FAULTS).join(" ")}`)
}

/** Whether a key's scopes allow a route. */
function isOpen({ scopes }: ApiKey, route: ToolRoute): boolean {
  const [method = "", path = ""] = route.split(" ")
  const access = accessOf(method, path)
  return access !== undefined && (!("scopes" in access) || access.scopes.some(scope => scopes.includes(scope)))
}

const preparing = (ctx: Context, apiKey: ApiKey, name: string, tool: MoneyTool): OpenTool => ({
  title: tool.title,
  does: tool.does,
  kind: "reads",
  input: tool.input,
  answers: undefined,
  run: async input => {
    const prepared = await tool.prepare(ctx, apiKey.merchantId, input)
    const { token, expiresAt } = tokenOf(
      ctx.settings.secretKeys,
      apiKey.id,
      { tool: name, input, ...prepared },
      wallTime(ctx),
    )
    return {
      sentence: `${prepared.sentence} Nothing has been done yet: \`confirm\` does it, with this token, within five minutes.`,
      result: { does: prepared.sentence, token, expiresAt: expiresAt.toISOString() },
    }
  },
})

const confirming = (ctx: Context, { apiKey, call }: Caller): OpenTool => {
  const opened = ({ token }: Input) => openToken(ctx.settings.secretKeys, apiKey.id, token, wallTime(ctx))
  return {
    title: "Confirm",
    does: "Does what a prepare tool has prepared. Call it only after the person has read the sentence and agreed. A token counts once: called again, it gives the first answer and moves nothing.",
    kind: "money",
    answers: undefined,
    input: Type.Object(
      { token: Type.String({ maxLength: 8_000, description: "The token of the prepare tool" }) },
      { additionalProperties: false },
    ),
    question: input => opened(input).sentence,
    run: async (input, isAgreed) => {
      const { tool, input: given, id, ...then } = opened(input)
      // What the sentence said must still be true, such as the address that the payer named.
      const now = await moneyTools[tool]?.prepare(ctx, apiKey.merchantId, given).catch(error => {
        // Already done: the request below gets the first answer again.
        if (error instanceof ApiError && error.code === "INVALID_OPERATION") return undefined
        throw error
      })
      if (now && now.sentence !== then.sentence)
        throw new Refusal(`It would do something else by now: ${now.sentence} Prepare it again.`)
      const result = await call("POST", then.path, { body: then.body, idempotencyKey: `mcp_${id}`, isAgreed })
      const asked = isAgreed ? "A person agreed." : "No person was asked by this service."
      return { sentence: `Done: ${then.sentence} ${asked}`, result }
    },
  }
}
