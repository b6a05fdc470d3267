/**
 * Asks the person who uses an MCP client, if the client shows questions. Both revisions of the protocol ask through
 * the same result.
 */
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  type InputRequiredResult,
  inputRequired,
  type Server,
  type ServerContext,
} from "@modelcontextprotocol/server"

/**
 * What the person said. `unasked`: the client shows no questions. An {@link InputRequiredResult} must be returned to
 * the client, which then calls the tool again.
 */
export type Said = "agreed" | "refused" | "unasked" | InputRequiredResult

/** Asks a yes-or-no question, and returns what the person said. */
export function askPerson(mcp: Server, { mcpReq }: ServerContext, question: string): Said {
  const ofRequest = (mcpReq.envelope ?? {}) as Record<string, { elicitation?: object } | undefined>
  const capabilities = ofRequest[CLIENT_CAPABILITIES_META_KEY] ?? mcp.getClientCapabilities()
  if (capabilities?.elicitation === undefined) return "unasked"
  if (mcpReq.inputResponses !== undefined)
    return acceptedContent(mcpReq.inputResponses, "agree")?.agree === true ? "agreed" : "refused"
  const requestedSchema = {
    type: "object",
    properties: { agree: { type: "boolean", title: "Do it" } },
    required: ["agree"],
  } as const
  return inputRequired({
    inputRequests: {
      agree: inputRequired.elicit({ message: question, requestedSchema: requestedSchema as never }),
    },
  })
}
