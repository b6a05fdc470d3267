/** `/api/console/payers` shows who paid, by wallet address or e-mail address. */
import { Type } from "typebox"
import { type Context, reading } from "../../platform/context.ts"
import { AddressText, Described, ListEnd, Matching, Nullable, Page, Timestamp } from "../../platform/http/schemas.ts"
import { inData, sendList } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { payersOf, readPayer, shownPayers } from "./read-payers.ts"

const tags = ["insight"]

const Totals = Type.Object({
  chain: Type.String(),
  token: AddressText,
  currency: Type.String(),
  decimals: Nullable(Type.Integer()),
  payments: Type.Integer({ description: "How many payments there are, in any state" }),
  paid: Described(Type.String(), "Sum of payments that count, and of what you captured less its refunds"),
  returned: Described(Type.String(), "Sum of payments that were sent back, and of refunds"),
  open: Described(Type.String(), "Sum of payments that wait for your decision"),
  reserved: Described(Type.String(), "Reserved, but not captured or released"),
})

const Payer = Type.Object({
  address: AddressText,
  lastPaidAt: Timestamp,
  totals: Type.Array(Totals, { description: "By network and token; nothing is added across tokens" }),
})

const PayerWhole = Type.Object({
  wallets: Type.Array(Payer, {
    description: "The address, or the addresses that paid with this e-mail address; at most 100",
  }),
  refunded: Type.Array(
    Type.Object({ chain: Type.String(), currency: Type.String(), captured: Type.String(), refunded: Type.String() }),
    { description: "For escrow payments, the newest 100" },
  ),
  subscriptions: Type.Array(
    Type.Object({
      id: Type.String(),
      status: Type.String(),
      productId: Type.String(),
      paidUntil: Nullable(Timestamp),
      customerEmail: Nullable(Type.String()),
    }),
  ),
  access: Type.Array(
    Type.Object({
      paywallId: Type.String(),
      name: Type.String(),
      address: AddressText,
      expiresAt: Described(Nullable(Timestamp), "Null: without end"),
      callsLeft: Described(Nullable(Type.Integer()), "Null: any number"),
    }),
  ),
})

export function payerRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/payers",
    {
      schema: {
        operationId: "listPayers",
        summary: "Payers and what they paid; latest payers first",
        tags,
        querystring: Type.Object({
          ...Page.properties,
          q: Type.Optional(
            Matching("^(0x[0-9a-fA-F]{40}|(?!.{321})[^@\\s]+@[^@\\s]+)$", "An address, or an e-mail address"),
          ),
        }),
        response: { 200: Type.Object({ data: Type.Array(Payer), ...ListEnd }) },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      const { q, ...page } = request.query
      const show = async (rows: Parameters<typeof shownPayers>[2]) => await shownPayers(read, merchantId, rows)
      return await sendList(read, reply, page, payersOf(read, merchantId, q), show, inData)
    },
  )

  app.get(
    "/api/console/payers/:payer",
    {
      schema: {
        operationId: "readPayer",
        summary: "A payer by address or e-mail address: paid, refunded, subscriptions and access",
        tags,
        params: Type.Object({
          payer: Type.String({
            maxLength: 320,
            description: "An address or an e-mail address",
            examples: ["0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"],
          }),
        }),
        response: { 200: PayerWhole },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => await readPayer(await reading(ctx), await callingMerchant(request), request.params.payer),
  )
}
