/**
 * `/api/paywalls/:id/access` and `/consume`: a buyer proves which wallet it has, and a merchant's server counts
 * calls.
 */
import { caip10Of, type Door, offerNonce, proveWallet, useProof } from "../../account/identity/prove-wallet.ts"
import { NoBody, NonceAnswer } from "../../account/identity/schema.ts"
import { signToken, TOKEN_TYPES } from "../../account/identity/use-signing-keys.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, wallTime } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { callingMerchantByKey } from "../../platform/http/authenticate.ts"
import { idempotently } from "../../platform/http/run-idempotently.ts"
import { orEmptyBody, type Server } from "../../platform/http/server.ts"
import { accessOf, takeCall } from "./read-access.ts"
import { AccessProve, AccessToken, Consume, ConsumeAnswer, Id } from "./schema.ts"
import { publicPaywall } from "./submit-payment.ts"

/** The longest that an access token is valid, even if the access is revoked earlier. */
const ACCESS_TOKEN_MS = 300_000

export function accessRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/paywalls/:id/access/nonce",
    {
      schema: {
        operationId: "createAccessNonce",
        summary: "Issues the nonce for one proof, valid for ten minutes, and the message to sign",
        tags: ["buyers"],
        params: Id,
        body: NoBody,
        response: { 200: NonceAnswer },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
      preValidation: orEmptyBody,
    },
    async request => await offerNonce(ctx, doorOf(ctx, await publicPaywall(ctx, request.params.id))),
  )

  app.post(
    "/api/paywalls/:id/access",
    {
      schema: {
        operationId: "proveAccess",
        summary: "Issues an access token to a caller who proves that they own an address with access",
        description:
          "The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/paywalls/<id>/access`, the paywall's network, the nonce, and the single resource `urn:sluice:paywall:<id>`. The token is valid for at most five minutes, and never longer than the access. It uses up no call of a `per_call` grant; `consume` does.",
        tags: ["buyers"],
        params: Id,
        body: AccessProve,
        response: { 200: AccessToken },
      },
      config: { errors: ["SIGNATURE_REFUSED", "ACCESS_REQUIRED", "PAYWALL_NOT_FOUND", "CHAIN_UNAVAILABLE"] },
    },
    async request => {
      const address = addressField("address", request.body.address)
      const paywall = await publicPaywall(ctx, request.params.id)
      const door: Door = { ...doorOf(ctx, paywall), address }
      const proof = await proveWallet(ctx, door, request.body)
      const access = await accessOf(ctx, paywall, address)
      if (!access) throw new ApiError("ACCESS_REQUIRED")
      await useProof(ctx, door, proof)
      // The token's expiry is in wall time, but the remaining access is measured by the service's clock.
      const leftMs = Math.min(ACCESS_TOKEN_MS, access.expiresAt.getTime() - ctx.now().getTime())
      const expiresAt = new Date(Math.floor((wallTime(ctx).getTime() + leftMs) / 1_000) * 1_000)
      const token = { typ: TOKEN_TYPES.paywallAccess, aud: paywall.id, sub: caip10Of(proof), expiresAt }
      return {
        accessToken: await signToken(ctx, token),
        expiresAt: expiresAt.toISOString(),
        contentUrl: paywall.content_url,
        contentData: paywall.content_data,
      }
    },
  )

  app.post(
    "/api/paywalls/:id/consume",
    {
      schema: {
        operationId: "consumeCall",
        summary: "Uses up one paid call of an address",
        description:
          "For a `per_call` paywall, each payment is one call. Other paywalls don't count calls: all are allowed while the access lasts, and `remaining` is null. Access through a subscription has unlimited calls, and uses up no paid calls.",
        tags: ["paywalls"],
        params: Id,
        body: Consume,
        response: { 200: ConsumeAnswer },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = callingMerchantByKey(request)
      const address = addressField("address", request.body.address)
      const paywall = await publicPaywall(ctx, request.params.id)
      if (paywall.merchant_id !== merchantId) throw new ApiError("PAYWALL_NOT_FOUND")
      return await idempotently(ctx, request, reply, merchantId, ctx => takeCall(ctx, paywall, address))
    },
  )
}

const doorOf = (ctx: Context, paywall: { id: string; chain_id: number }): Door => ({
  purpose: "paywall",
  resource: paywall.id,
  path: `/api/paywalls/${paywall.id}/access`,
  networks: [networkOf(ctx.chain, paywall.chain_id)],
})
