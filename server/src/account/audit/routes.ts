/** `/api/console/audit`: who changed the merchant's objects, what changed, when, and from where. */
import type { Context } from "../../platform/context.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import type { Server } from "../../platform/http/server.ts"
import { entryOf } from "./entry.ts"
import { entriesOf } from "./queries.ts"
import { AuditFilters, AuditList } from "./schema.ts"
import { auditCsv } from "./write-audit-csv.ts"

export function auditRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/audit",
    operationId: "listAuditEntries",
    summary: "Who changed what, when and from where, newest first",
    description:
      "Each change to your configuration and each decision about money is recorded, in the same transaction. A refused request is not recorded. Entries are kept forever and never changed, except to erase a customer's data. They include the IP addresses of requests. An API key with the scope `console` can read them too.",
    tags: ["audit log"],
    filter: AuditFilters.properties,
    answer: AuditList,
    source: (read, merchantId, filter) =>
      newestFirst(entriesOf(read, merchantId, filter), { at: "at", id: "n", isNumber: true }),
    show: (_, rows) => rows.map(row => entryOf(ctx.chain.networks, row)),
    csv: {
      operationId: "exportAuditEntries",
      summary: "All entries that match the filter, as CSV",
      description:
        "`before` and `after` are JSON. If a spreadsheet would run a text as a formula, the text starts with an apostrophe.",
      lines: auditCsv,
    },
  })
}
