/** `/api/auth`: wallet sign-in, and the public keys of all tokens that the service signs. */
import { type Context, inTransaction, wallTime } from "../../platform/context.ts"
import { orEmptyBody, type Server } from "../../platform/http/server.ts"
import { membershipsOf } from "./find-member.ts"
import { caip10Of, offerNonce, proveWallet, SIGN_IN_PATH, signInDoor, useProof } from "./prove-wallet.ts"
import { KeySet, NoBody, NonceAnswer, SignedIn, SignIn } from "./schema.ts"
import { CONSOLE_TOKEN_MS, publishedKeys, publishedReceiptKeys, signToken, TOKEN_TYPES } from "./use-signing-keys.ts"

const KEYS_CACHED = "public, max-age=300"
const tags = ["sign-in"]

export function authRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/auth/nonce",
    {
      schema: {
        operationId: "createSignInNonce",
        summary: "Issues the nonce for one sign-in, valid for ten minutes, and the message to sign",
        tags,
        body: NoBody,
        response: { 200: NonceAnswer },
      },
      preValidation: orEmptyBody,
    },
    async ({ headers }) => await offerNonce(ctx, signInDoor(ctx, headers.host)),
  )

  app.post(
    SIGN_IN_PATH,
    {
      schema: {
        operationId: "signIn",
        summary: "Signs a wallet in, for an hour",
        description:
          "The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/auth/verify`, a network of this service, the nonce, and the single resource `urn:sluice:sign-in`. Contract wallets can sign too (ERC-1271), even before they are deployed (ERC-6492). A person is identified by wallet and network. Signing in creates no merchant; the first request to the console does, or `POST /api/console/merchants`.",
        tags,
        body: SignIn,
        response: { 200: SignedIn },
      },
      config: { errors: ["SIGNATURE_REFUSED", "CHAIN_UNAVAILABLE"] },
    },
    async request => {
      const door = signInDoor(ctx, request.headers.host)
      const proof = await proveWallet(ctx, door, request.body)
      const sub = caip10Of(proof)
      const subject = { iss: ctx.settings.baseUrl, sub }
      await inTransaction(ctx, ctx => useProof(ctx, door, proof))
      const [only, ...others] = (await membershipsOf(ctx, subject)) ?? []
      const merchantId = only && others.length === 0 ? only.merchantId : null
      const expiresAt = new Date(wallTime(ctx).getTime() + CONSOLE_TOKEN_MS)
      const token = { typ: TOKEN_TYPES.console, aud: ctx.settings.oidcAudience, sub, expiresAt }
      return { accessToken: await signToken(ctx, token), expiresAt: expiresAt.toISOString(), merchantId }
    },
  )

  app.get(
    "/.well-known/jwks.json",
    {
      schema: {
        operationId: "readSigningKeys",
        summary: "The public keys of the tokens and receipts that the service signs",
        description:
          "Check `iss`, `aud` and the header's `typ` too: a paywall's token has the paywall's id as `aud` and `paywall-access+jwt` as `typ`.",
        tags,
        response: { 200: KeySet },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", KEYS_CACHED)
      return { keys: [...(await publishedKeys(ctx)), ...(await publishedReceiptKeys(ctx))] as never }
    },
  )
}
