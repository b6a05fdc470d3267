/** `/api/console/audit`: who changed the merchant's objects, what changed, when, and from where. */
import { Type } from "typebox"
import { type Context, reading } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { CsvAnswer, csvQuery, sendCsv } from "../../platform/http/send-csv.ts"
import { inData, newestFirst, sendList } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { entryOf } from "./entry.ts"
import { entriesOf } from "./queries.ts"
import { AuditFilters, AuditList, AuditQuery } from "./schema.ts"
import { auditCsv } from "./write-audit-csv.ts"

const tags = ["audit log"]
const byTime = { at: "at", id: "n", isNumber: true }

export function auditRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/audit",
    {
      schema: {
        operationId: "listAuditEntries",
        summary: "Who changed what, when and from where, newest first",
        description:
          "An entry for each change of your configuration and each decision about money, written together with it: whatever was refused left none. Entries are kept for ever, and never changed. They have the addresses that requests came from, and an API key with the scope `read` or `console` reads them too.",
        tags,
        querystring: AuditQuery,
        response: { 200: AuditList },
      },
    },
    async (request, reply) => {
      const { limit, offset, after, ...filter } = request.query
      const merchantId = await callingMerchant(request)
      const read = await reading(ctx)
      const entries = newestFirst(entriesOf(read, merchantId, filter), byTime)
      const format = (rows: Row<"audit_entries">[]) => rows.map(row => entryOf(ctx.chain.networks, row))
      return await sendList(read, reply, { limit, offset, after }, entries, format, inData)
    },
  )

  app.get(
    "/api/console/audit.csv",
    {
      schema: {
        operationId: "exportAuditEntries",
        summary: "All entries that match the filter, as CSV",
        description:
          "`before` and `after` are JSON. A text that a spreadsheet would run as a formula begins with an apostrophe.",
        tags,
        querystring: Type.Object({ ...AuditFilters.properties, ...csvQuery }),
        response: CsvAnswer,
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const read = await reading(ctx)
      return await sendCsv(ctx, reply, "audit.csv", auditCsv(read, merchantId, request.query), request.query)
    },
  )
}
