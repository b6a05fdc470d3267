/** The routes `/x402/*` of the facilitator, through which other x402 servers verify and settle payments. */
import { addressField } from "../../platform/chain/address-field.ts"
import { checksummed, parseHash } from "../../platform/chain/hex.ts"
import type { Token } from "../../platform/chain/network-facts.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { callingMerchantByKey } from "../../platform/http/authenticate.ts"
import type { Server } from "../../platform/http/server.ts"
import { networkName, SCHEME } from "./protocol.ts"
import { readSettlement } from "./read-outcome.ts"
import { statusOf } from "./routes.ts"
import {
  AuthorizationPath,
  FacilitatorBody,
  FacilitatorSettlement,
  SettleAnswerSchema,
  SettleQuery,
  Supported,
  VerifyAnswer,
} from "./schema.ts"
import { settle, verify } from "./verify-and-settle.ts"

const tags = ["facilitator"]

/** What a server puts into `accepts` to request this token without having its own list of tokens. */
const assetOf = ({ address, decimals, name, version }: Token) => ({
  asset: checksummed(address),
  decimals,
  name,
  version,
})

export function facilitatorRoutes(app: Server, ctx: Context): void {
  app.get(
    "/x402/supported",
    {
      schema: {
        operationId: "listSupported",
        summary: "The versions, schemes and networks that the facilitator settles",
        tags,
        response: { 200: Supported },
      },
    },
    async () => ({
      kinds: ctx.chain.networks.flatMap(network =>
        ([1, 2] as const).map(version => ({
          x402Version: version,
          scheme: SCHEME,
          network: networkName(network, version),
          extra: assetOf(network.token),
        })),
      ),
      extensions: [],
      signers: ctx.settings.relayWallet ? { "eip155:*": [checksummed(ctx.settings.relayWallet)] } : {},
    }),
  )

  app.post(
    "/x402/verify",
    {
      schema: {
        operationId: "verifyX402Payment",
        summary: "Whether a buyer's payment can be settled; writes nothing",
        tags,
        body: FacilitatorBody,
        response: { 200: VerifyAnswer },
      },
      config: { errors: ["INVALID_OPERATION", "RELAY_UNAVAILABLE", "CHAIN_UNAVAILABLE"] },
    },
    async request => await verify(ctx, callingMerchantByKey(request), request.body),
  )

  app.post(
    "/x402/settle",
    {
      schema: {
        operationId: "settleX402Payment",
        summary: "Settles a buyer's payment, once",
        description:
          "Answers `success: true` once for a payment, when its transfer is in a block. A repeated payment gets `duplicate_settlement` with its `transaction`, or the first answer if you send the `Idempotency-Key` of the first call. If settling takes longer than `maxTimeoutSeconds`, the answer is `settlement_pending`, and settling continues.",
        tags,
        body: FacilitatorBody,
        querystring: SettleQuery,
        response: { 200: SettleAnswerSchema },
      },
      config: {
        errors: ["INVALID_OPERATION", "PAYMENT_IDENTIFIER_USED", "RELAY_UNAVAILABLE", "CHAIN_UNAVAILABLE"],
      },
    },
    async (request, reply) => {
      const key = request.headers["idempotency-key"]
      if (key !== undefined && !/^[\x21-\x7e]{1,255}$/.test(`${key}`))
        throw invalid("Idempotency-Key", "must be 1 to 255 visible ASCII characters, without spaces")
      return await settle(ctx, reply, request.body, {
        merchantId: callingMerchantByKey(request),
        idempotencyKey: key === undefined ? undefined : `${key}`,
        confirmations: request.query.confirmations,
      })
    },
  )

  app.get(
    "/x402/settlements/:from/:nonce",
    {
      schema: {
        operationId: "readX402Settlement",
        summary: "The state of a settlement that one of the merchant's servers requested",
        tags,
        params: AuthorizationPath,
        response: { 200: FacilitatorSettlement },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => {
      const from = addressField("from", request.params.from)
      const nonce = parseHash(request.params.nonce)
      if (!nonce) throw invalid("nonce", "must be 0x and 64 hexadecimal digits")
      const found = await ctx.db
        .selectFrom("settlements")
        .select("id")
        .where("payer", "=", from)
        .where("nonce", "=", nonce)
        .where("merchant_id", "=", callingMerchantByKey(request))
        .where("resource_id", "is", null)
        .executeTakeFirst()
      const row = found && (await readSettlement(ctx, found.id))
      if (!row) throw new ApiError("NOT_FOUND")
      return {
        ...(await statusOf(ctx, row)),
        payer: checksummed(row.payer),
        payTo: checksummed(row.pay_to),
        amount: `${row.amount}`,
        asset: checksummed(row.token),
        isAnswered: row.served_at !== null,
      }
    },
  )
}
