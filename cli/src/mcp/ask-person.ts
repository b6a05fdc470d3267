/** Asks the person at an MCP client, if the client shows questions. Both revisions of the protocol ask with the same answer. */
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  type InputRequiredResult,
  inputRequired,
  type Server,
  type ServerContext,
} from "@modelcontextprotocol/server"

/** `unasked`: the client shows no questions. A result has to be returned to the client, which calls the tool again then. */
export type Said = "agreed" | "refused" | "unasked" | InputRequiredResult

/** What the person says to a question of yes or no. */
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
