/**
 * Serves the merchant's tools over stdio. The tools are those of the service (`POST /mcp`), with its rules. The
 * command passes calls on, and asks the person if the client can show questions.
 */
import { type CallToolResult, type InputRequiredResult, Server, type ServerContext } from "@modelcontextprotocol/server"
import { serveStdio } from "@modelcontextprotocol/server/stdio"
import { SluiceError } from "../../../sdk/src/errors.ts"
import manifest from "../../package.json" with { type: "json" }
import { Failure } from "../failure.ts"
import { refusalOf } from "../request.ts"
import { askPerson } from "./ask-person.ts"

const TIMEOUT_MS = 60_000
const PROTOCOL = "2025-11-25"
const NOT_FOUND = 404

interface Service {
  baseUrl: string
  apiKey: string
  /** Whether tools that change something are offered. */
  writes: boolean
}

/** Serves until the client leaves. Throws at the start if the service can't be reached or does not accept the key. */
export async function serveMerchant(service: Service): Promise<void> {
  const clientInfo = { name: "sluice mcp", version: manifest.version }
  const initialized = await ask(service, "initialize", {
    protocolVersion: PROTOCOL,
    capabilities: {},
    clientInfo,
  }).catch(error => {
    if (error instanceof SluiceError && error.status === NOT_FOUND)
      throw new Failure(`${service.baseUrl} is older than this command: it has no /mcp.`)
    throw error
  })
  const { instructions } = initialized as { instructions?: string }
  // The sentence for each token that this process has passed on.
  const sentences = new Map<string, string>()
  serveStdio(() => {
    const mcp = new Server(
      { name: "sluice", version: manifest.version },
      { capabilities: { tools: {} }, ...(instructions === undefined ? {} : { instructions }) },
    )
    mcp.setRequestHandler("tools/list", async () => (await ask(service, "tools/list", {})) as never)
    mcp.setRequestHandler("tools/call", async ({ params: { name, arguments: input = {} } }, context) => {
      try {
        return await call(service, { mcp, sentences, context }, name, input)
      } catch (error) {
        if (error instanceof SluiceError) return failed(`${error.message} (${error.code})`)
        throw error
      }
    })
    return mcp
  })
}

interface Talk {
  mcp: Server
  sentences: Map<string, string>
  context: ServerContext
}

async function call(
  service: Service,
  { mcp, sentences, context }: Talk,
  name: string,
  input: Record<string, unknown>,
): Promise<CallToolResult | InputRequiredResult> {
  const sentence = name === "confirm" ? sentences.get(`${input.token}`) : undefined
  const said = sentence === undefined ? "unasked" : askPerson(mcp, context, sentence)
  if (typeof said === "object") return said
  if (said === "refused") return failed("The person did not agree. Nothing was done.")
  const meta = said === "agreed" ? { _meta: { "sluice/agreed": true } } : {}
  const answer = (await ask(service, "tools/call", { name, arguments: input, ...meta })) as CallToolResult
  const { does, token } = (answer.structuredContent as { result?: Record<string, unknown> } | undefined)?.result ?? {}
  if (typeof does === "string" && typeof token === "string") sentences.set(token, does)
  return answer
}

const failed = (text: string): CallToolResult => ({ content: [{ type: "text", text }], isError: true })

/**
 * Sends one request to the service's own MCP server and returns the result; throws a {@link SluiceError} for a
 * refusal.
 */
async function ask({ baseUrl, apiKey, writes }: Service, method: string, params: object): Promise<unknown> {
  const response = await fetch(`${baseUrl}/mcp${writes ? "?write=true" : ""}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${apiKey}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    // A redirect would send the key elsewhere.
    redirect: "manual",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch(cause => {
    const message = `The service can't be reached at ${baseUrl}.`
    throw new SluiceError(message, { code: "CONNECTION_FAILED", docUrl: "" }, { cause })
  })
  if (!response.ok) throw await refusalOf(baseUrl, response)
  const text = await response.text()
  const data = /^data: (.*)$/m.exec(text)?.[1] ?? text
  const { result, error } = JSON.parse(data) as { result?: unknown; error?: { message: string } }
  if (error) throw new SluiceError(error.message, { code: "UNREADABLE_ANSWER", status: response.status, docUrl: "" })
  return result
}
