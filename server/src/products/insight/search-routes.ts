/** `/api/console/search` finds any of the merchant's objects by a part that is known. */
import { type Context, reading } from "../../platform/context.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { findMatches } from "./find-matches.ts"
import { Matches, SearchQuery } from "./search-schema.ts"

export function searchRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/search",
    {
      schema: {
        operationId: "search",
        summary: "Finds anything by its id, hash, address, e-mail address, slug, name, amount or metadata",
        description:
          "Texts are compared as a whole, ignoring case; for a name, its start is enough. Metadata is found by top-level texts, numbers and booleans, in up to 50 fields of a checkout.",
        tags: ["insight"],
        querystring: SearchQuery,
        response: { 200: Matches },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      return { data: await findMatches(await reading(ctx), merchantId, request.query.q) }
    },
  )
}
