/** `/api/console/reports/*.csv`: reports for accountants. */
import { Type } from "typebox"
import { zoneOf } from "../../account/identity/read-zone.ts"
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import { invalid } from "../../platform/errors.ts"
import { Described } from "../../platform/http/schemas.ts"
import { CsvAnswer, csvQuery, sendCsv } from "../../platform/http/send-csv.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { TimeInput, timeAt } from "../../platform/http/time.ts"
import { zoneNamed } from "../../platform/http/zone.ts"
import { booksCsv } from "./read-books.ts"
import { balanceReport, type Period, payoutsReport, taxReport } from "./write-reports.ts"

interface Report {
  operationId: string
  summary: string
  description: string
  lines(read: TxContext, merchantId: string, query: Period & { tz: string }): AsyncGenerator<string | Buffer>
}

const reports: Record<string, Report> = {
  books: {
    operationId: "reportBooks",
    summary: "Every transfer with its reason and value, as CSV",
    description: "The books of the period, newest first.",
    lines: booksCsv,
  },
  payouts: {
    operationId: "reportPayouts",
    summary: "Every payout with the payments inside it, as CSV",
    description:
      "One line for each payment in each payout that was mined in the period: sweeps and captures to you, and shares to the recipients of your splits. The lines of a payout add up exactly to its amount. `valueReceived` uses the rate at the payment's time, `valuePaid` the rate at the payout's time.",
    lines: payoutsReport,
  },
  balance: {
    operationId: "reportBalance",
    summary: "Opening and closing balance, and what came in and went out, by network and token, as CSV",
    description:
      "For each network and token: what your receiving addresses and escrows held at the start and the end of the period, and what came in and went out in between, by reason.",
    lines: balanceReport,
  },
  tax: {
    operationId: "reportTax",
    summary: "What was received and given back by month, with its value, as CSV",
    description:
      "For each month of the time zone `tz`, network and token: what was received for payments, what was returned and refunded to payers, and the difference. Each transfer is valued at the rate at its time, and the values are added up. `unvalued` counts transfers without a known rate; they are in the amounts but not in the values.",
    lines: taxReport,
  },
}

const period = {
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; transfers at exactly this time are not included")),
}
const zone = {
  tz: Type.Optional(
    Type.String({
      maxLength: 64,
      description: "A time zone of the IANA database, such as Europe/Berlin; by default the merchant's, otherwise UTC",
    }),
  ),
}

export function reportRoutes(app: Server, ctx: Context): void {
  for (const [kind, { lines, ...documented }] of Object.entries(reports)) {
    const querystring = Type.Object({ ...period, ...(kind === "tax" ? zone : {}), ...csvQuery })
    const schema = { ...documented, tags: ["books"], querystring, response: CsvAnswer }
    app.get(`/api/console/reports/${kind}.csv`, { schema }, async (request, reply) => {
      const read = await reading(ctx)
      const { bom, ...query } = request.query as Period & { tz?: string; bom?: "1" }
      for (const path of ["from", "to"] as const) if (query[path] !== undefined) timeAt(path, query[path])
      if (query.tz !== undefined && !zoneNamed(query.tz))
        throw invalid("tz", "must be a time zone such as Europe/Berlin")
      const merchantId = await callingMerchant(request)
      const { tz = await zoneOf(read, merchantId) } = query
      const file = lines(read, merchantId, { ...query, tz })
      return await sendCsv(read, reply, `${kind}.csv`, file, bom ? { bom } : {})
    })
  }
}
