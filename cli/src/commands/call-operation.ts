/** Calls one operation of the API with the arguments and options of its command. */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { type Field, type Operation, optionOf } from "../operation.ts"
import { connect } from "../profiles.ts"
import { readText } from "../read-text.ts"

type Call = (...args: unknown[]) => Promise<unknown>
interface List extends AsyncIterable<unknown> {
  page(query: object): Promise<unknown>
}

/** Prints the answer of the operation: one page of a list, or each row with `--all`. */
export async function callOperation(operation: Operation, { args, options, out }: Input): Promise<void> {
  const [resource, method] = operation.call
  const given = await inputOf(operation, options)
  const sluice = connect(options) as unknown as Record<string, Record<string, Call | ((...args: unknown[]) => List)>>
  const call = sluice[resource]?.[method] as Call
  const idempotencyKey = options.idempotencyKey as string | undefined
  const more = idempotencyKey === undefined ? [] : [{ idempotencyKey }]
  if (!operation.pages) {
    const answer = await call(...args, ...(operation.body || operation.query ? [given] : []), ...more)
    return out.show(
      operation.csv && out.isJson ? { csv: answer } : typeof answer === "string" ? answer.trimEnd() : answer,
    )
  }
  const { after, limit, ...query } = given
  const list = call(...args, query) as unknown as List
  if (!options.all)
    return out.show(
      await list.page({ ...(after === undefined ? {} : { after }), ...(limit === undefined ? {} : { limit }) }),
    )
  for await (const row of list) process.stdout.write(`${JSON.stringify(row)}\n`)
}

async function inputOf(
  { fields = {}, body }: Operation,
  options: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  const text = body && typeof options.data === "string" ? await readText(options.data) : undefined
  const whole = text === undefined ? {} : jsonAt("--data", text)
  if (typeof whole !== "object" || whole === null || Array.isArray(whole))
    throw new Failure("--data must be a JSON object.", 2)
  const named = Object.entries(fields).flatMap(([name, field]) => {
    const option = optionOf(name)
    const value = options[option.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase())]
    return value === undefined ? [] : [[name, valueIn(`--${option}`, field, String(value))] as const]
  })
  return { ...(whole as object), ...Object.fromEntries(named) }
}

function valueIn(option: string, { type, nullable }: Field, text: string): unknown {
  if (nullable && text === "null") return null
  if (type === "text") return text
  const value = jsonAt(option, text)
  if (type !== "json" && typeof value !== type) throw new Failure(`${option} must be a ${type}, not ${text}.`, 2)
  return value
}

function jsonAt(option: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Failure(`${option} is not JSON: ${text.slice(0, 80)}`, 2)
  }
}
