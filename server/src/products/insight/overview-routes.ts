/** `/api/console/overview` and `/api/console/balances`: a merchant's figures in one request each. */
import type { Static } from "typebox"
import { zoneOf } from "../../account/identity/read-zone.ts"
import { networkAsked } from "../../platform/chain/network-facts.ts"
import { type Context, reading } from "../../platform/context.ts"
import { invalid } from "../../platform/errors.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { timeAt } from "../../platform/http/time.ts"
import { zoneNamed } from "../../platform/http/zone.ts"
import { Balances, Overview, OverviewQuery } from "./overview-schema.ts"
import { type Asked, balancesOf, overviewOf } from "./read-overview.ts"
import { MAX_PERIODS, periodsOf } from "./zones.ts"

const tags = ["overview"]
const DEFAULT_MS = 30 * 86_400_000

export function overviewRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/overview",
    {
      schema: {
        operationId: "readOverview",
        summary: "Figures by period, the figures of the time before, and what needs you",
        description:
          "A figure has the time of its entry in the books: the block of a transfer, or when a payout was first seen in a block. A refund or a reversed payment therefore subtracts in the period in which it happens, and the payment's own period stays unchanged. The books of the same time have the same sums, except for reversed payments: the books leave them out, while here they are in both `received` and `reversed`. Nothing is added across tokens or networks.",
        tags,
        querystring: OverviewQuery,
        response: { 200: Overview },
      },
    },
    async request => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      const { tz = await zoneOf(read, merchantId) } = request.query
      return await overviewOf(read, { merchantId, ...askedOf(ctx, tz, request.query) })
    },
  )

  app.get(
    "/api/console/balances",
    {
      schema: {
        operationId: "readBalances",
        summary: "Balances at your receiving addresses and in the escrow, according to the books, by network and token",
        tags,
        response: { 200: Balances },
      },
    },
    async request => {
      const read = await reading(ctx)
      return { data: await balancesOf(read, await callingMerchant(request)) }
    },
  )
}

/** Parses the query; throws `VALIDATION_ERROR` with every fault. */
function askedOf(ctx: Context, tz: string, query: Static<typeof OverviewQuery>): Omit<Asked, "merchantId"> {
  const { interval = "day", chain } = query
  const to = query.to === undefined ? ctx.now() : timeAt("to", query.to)
  const from = query.from === undefined ? new Date(to.getTime() - DEFAULT_MS) : timeAt("from", query.from)
  const chainId = chain === undefined ? null : networkAsked(ctx.chain, chain).chainId
  if (!zoneNamed(tz)) throw invalid("tz", "must be the name of a time zone, such as Asia/Kolkata or UTC")
  if (from >= to) throw invalid("from", "must be before `to`")
  const bounds = periodsOf(from, to, interval, tz)
  if (!bounds)
    throw invalid(
      "interval",
      `must be longer, or the time shorter: there are more than ${MAX_PERIODS} periods between \`from\` and \`to\``,
    )
  return { chainId, bounds, interval, tz }
}
