/** A client of `sluice mcp`, by hand: each line that the program prints must be of the protocol. */
import { createInterface } from "node:readline"
import { expect } from "vitest"
import type { Cli, Started } from "./program.ts"

const clientInfo = { name: "test", version: "1" }

export interface Spoken {
  run: Started
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  ask(method: string, params?: object): Promise<any>
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  begin(): Promise<any>
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  call(name: string, input?: object): Promise<any>
  /** What the person was asked; the first question is declined. */
  asked: string[]
}

/** Starts the program, and speaks as a client of the older revision does. */
export function speakTo(
  cli: Cli,
  args: string[],
  env: Record<string, string> = cli.env,
  capabilities: object = {},
): Spoken {
  const run = cli.start(["mcp", ...args], env)
  let id = 0
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  const waiting = new Map<number, (message: any) => void>()
  const asked: string[] = []
  const send = (message: object) => run.child.stdin?.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)
  createInterface({ input: run.child.stdout as NodeJS.ReadableStream }).on("line", line => {
    const message = JSON.parse(line)
    expect(message.jsonrpc).toBe("2.0")
    if (message.method === "elicitation/create") {
      asked.push(message.params.message)
      return send({ id: message.id, result: { action: "accept", content: { agree: asked.length > 1 } } })
    }
    waiting.get(message.id)?.(message)
  })
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  const ask = async (method: string, params: object = {}): Promise<any> => {
    const answer = new Promise(resolve => waiting.set(++id, resolve))
    send({ id, method, params })
    const { result, error } = (await answer) as { result: unknown; error?: unknown }
    expect(error).toBeUndefined()
    return result
  }
  const begin = async () => {
    const begun = await ask("initialize", { protocolVersion: "2025-06-18", capabilities, clientInfo })
    send({ method: "notifications/initialized" })
    return begun
  }
  const call = async (name: string, input: object = {}) => {
    const { content, structuredContent, isError = false } = await ask("tools/call", { name, arguments: input })
    return { said: content[0].text as string, isError, ...structuredContent }
  }
  return { run, ask, begin, call, asked }
}
