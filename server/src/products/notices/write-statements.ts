/** Writes the monthly statement: a merchant's income and outflow in the last month, by network and token. */
import { sql } from "kysely"
import { mailMembers } from "../../account/notifications/write-mails.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { overviewOf } from "../insight/read-overview.ts"

/** The day from which statements are mailed, because from then on the last month's books no longer change. */
const FIRST_DAY = 2
const LAST_DAY = 5
/** How many merchants a round handles at most, each in its own transaction. */
const AT_MOST = 50

const AMOUNT = /^-?[\d.]+$/
const NOTHING = /^-?[0.]+$/

/** Mails each merchant, once, the statement of the last month in UTC. A merchant whose money did not move gets none. */
export async function writeStatements(ctx: Context): Promise<void> {
  const now = ctx.now()
  if (now.getUTCDate() < FIRST_DAY || now.getUTCDate() > LAST_DAY) return
  const from = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 1)
  const to = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1)
  const month = new Date(from).toISOString().slice(0, 7)
  const { rows } = await sql<{ id: string }>`select distinct f.merchant_id as id from figures f
    where f.seconds = 86400 and f.at >= ${new Date(from)} and f.at < ${new Date(to)} and f.token <> ''
      and not exists (select from mails where merchant_id = f.merchant_id and dedupe_key = ${`statement ${month} `} || f.merchant_id)
    order by 1 limit ${AT_MOST}`.execute(ctx.db)
  for (const { id: merchantId } of rows)
    await inTransaction(ctx, async ctx => {
      const asked = { merchantId, chainId: null, bounds: [from, to], interval: "month", tz: "UTC" } as const
      const { totals } = await overviewOf(ctx, asked)
      await mailMembers(ctx, merchantId, "statement", {
        key: `statement ${month} ${merchantId}`,
        subject: `Your statement of ${month}`,
        lines: totals.flatMap(({ chain, currency, ...figures }) => [
          `${currency} on ${chain}`,
          ...Object.entries(figures).flatMap(([name, amount]) =>
            typeof amount === "string" && AMOUNT.test(amount) && !NOTHING.test(amount) ? [`  ${name}: ${amount}`] : [],
          ),
        ]),
        path: "/reports",
      })
    })
}
