/**
 * `/api/console/payouts` shows past and planned payouts, with their payments, gas and attempts, and why one is held.
 */
import { Type } from "typebox"
import { networkAsked } from "../../platform/chain/network-facts.ts"
import { type Context, reading } from "../../platform/context.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { Described, ListEnd } from "../../platform/http/schemas.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { TimeInput, timeAt } from "../../platform/http/time.ts"
import { Chain } from "../checkouts/schema.ts"
import {
  type PayoutFilter,
  partsOf,
  payoutsCsv,
  payoutsOf,
  readPayout,
  shownParts,
  shownPayouts,
} from "./list-payouts.ts"
import { PayoutPart, PayoutStory, payoutFields } from "./schema.ts"

const tags = ["payouts"]

const filters = {
  kind: Type.Optional(payoutFields.kind),
  state: Type.Optional(Described(payoutFields.state, "Filter by state")),
  chain: Type.Optional(Described(Chain, "A network of this service")),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; payouts created at exactly this time are not included")),
}

const PayoutId = Type.Object({
  id: Type.String({
    maxLength: 40,
    description: "The payout's id",
    examples: ["po_0f8b2c1e5d7a4e0f9b3c6d8a1e2f4b5c"],
  }),
})

export function payoutInsightRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/payouts",
    operationId: "listPayouts",
    summary: "Money sent to your wallet, to recipients of splits and back to payers, newest first",
    tags,
    filter: filters,
    answer: Type.Object({ data: Type.Array(Type.Object(payoutFields)), ...ListEnd }),
    source: (read, merchantId, filter) => payoutsOf(read, merchantId, checked(ctx, filter)),
    show: shownPayouts,
    csv: {
      operationId: "exportPayouts",
      summary: "All payouts that match the filter, as CSV",
      lines: (read, merchantId, filter) => payoutsCsv(read, merchantId, checked(ctx, filter)),
    },
  })

  app.get(
    "/api/console/payouts/:id",
    {
      schema: {
        operationId: "readPayout",
        summary: "One payout with its gas, its attempts and the reason for its state",
        tags,
        params: PayoutId,
        response: { 200: PayoutStory },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      return await readPayout(await reading(ctx), merchantId, request.params.id)
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/payouts/:id/payments",
    operationId: "listPayoutPayments",
    summary: "The payments in a payout, and how much of each",
    description:
      "For a sweep, each transfer that it took a part of, newest first. For a share, return or capture, its one payment. The parts add up exactly to the payout, even after a reorg removes a payment.",
    tags,
    params: PayoutId,
    answer: Type.Object({ data: Type.Array(PayoutPart), ...ListEnd }),
    source: (read, merchantId, _, { id }) => partsOf(read, merchantId, id),
    show: shownParts,
  })
}

/** Returns the filter unchanged; throws if it has faults, before anything is sent. */
function checked<T extends PayoutFilter>(ctx: Context, filter: T): T {
  for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
  networkAsked(ctx.chain, filter.chain)
  return filter
}
