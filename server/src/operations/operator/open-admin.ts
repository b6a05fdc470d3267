/**
 * The operator's interface to a running service: HTTP over a Unix socket (`socket.ts`), never on a port. Anyone who
 * can open the socket is the operator; there are no tokens and no limits here.
 */
import { Readable } from "node:stream"
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox"
import Fastify, { type FastifyError, type FastifyHttpOptions, type RawServerDefault } from "fastify"
import { Type } from "typebox"
import { heldReasons } from "../../ledger/txmanager/show-queue.ts"
import { withActor } from "../../platform/actor.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { networkNames } from "../../platform/chain/network-facts.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"
import type { HeldReason } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { parseJson } from "../../platform/http/json.ts"
import { Matching, Strict } from "../../platform/http/schemas.ts"
import { type Server, sendError } from "../../platform/http/server.ts"
import { validatorFactory } from "../../platform/http/validation.ts"
import { adopt } from "./adopt.ts"
import { adoptAll } from "./adopt-all.ts"
import { gweiForm, hashForm, nonceForm, payoutIdForm } from "./argument-forms.ts"
import { halt, resume } from "./halt.ts"
import { actionLog } from "./log-actions.ts"
import { cancel, heldPayouts, retryAll, retryPayout } from "./retry-payouts.ts"
import { rotateReceiptKey } from "./rotate-receipt-key.ts"
import { showWallets } from "./show.ts"
import { showStorage } from "./show-storage.ts"
import { unstick } from "./unstick.ts"

const GWEI = 1_000_000_000n

const By = Type.String({ minLength: 1, maxLength: 100 })
const Reason = Type.String({ minLength: 1, maxLength: 500 })
const formed = ({ pattern, words }: { pattern: string; words: string }) => Matching(pattern, words)
const PayoutId = formed(payoutIdForm)
const Held = Type.Unsafe<HeldReason>({ type: "string", enum: heldReasons })
const TxHash = formed(hashForm)
const Nonce = formed(nonceForm)
const Gwei = formed(gweiForm)
const NetworkName = Type.Unsafe<string>({ type: "string", enum: [...networkNames, "0g"] })
const Named = { wallet: Type.String({ minLength: 1, maxLength: 42 }), network: Type.Optional(NetworkName), by: By }
const Flag = Type.Optional(Type.Boolean())
const Count = Type.Object({ limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 100 }) })

/** Creates the server, which does not listen yet. `copy` makes a backup of the embedded database. */
export function openAdmin(ctx: Context, copy?: () => Promise<Blob>): Server {
  const options = {
    logger: false,
    schemaController: { compilersFactory: { buildValidator: () => validatorFactory } },
    forceCloseConnections: true,
  } as unknown as FastifyHttpOptions<RawServerDefault>
  const app = Fastify(options).withTypeProvider<TypeBoxTypeProvider>()
  app.removeAllContentTypeParsers()
  app.addContentTypeParser("application/json", { parseAs: "string" }, async (_request: unknown, text: string) =>
    parseJson(text),
  )
  app.addHook("preHandler", (request, _reply, done) => {
    const by = (request.body as { by?: string } | undefined)?.by
    const route = `sluice wallet ${request.routeOptions.url?.slice(1).replace("-", " --")}`
    withActor(by === undefined ? undefined : { kind: "operator", id: by, route }, done)
  })
  app.setErrorHandler((error: FastifyError, request, reply) => sendError(ctx, request, reply, unasked(error)))
  app.setNotFoundHandler((request, reply) => sendError(ctx, request, reply, new ApiError("NOT_FOUND")))
  actionRoutes(app, ctx)
  if (copy)
    app.get("/backup", async (_request, reply) => {
      reply.type("application/gzip")
      return Readable.fromWeb((await copy()).stream() as never)
    })
  return app
}

function actionRoutes(app: Server, ctx: Context): void {
  app.get("/wallets", { schema: { querystring: Type.Object({ network: Type.Optional(NetworkName) }) } }, request =>
    showWallets(ctx, request.query.network).then(data => ({ data })),
  )
  app.get("/held", { schema: { querystring: Count } }, request =>
    heldPayouts(ctx, request.query.limit).then(data => ({ data })),
  )
  app.get("/storage", () => showStorage(ctx).then(data => ({ data })))
  app.get("/log", { schema: { querystring: Count } }, request =>
    actionLog(ctx, request.query.limit).then(data => ({ data })),
  )
  app.post("/halt", { schema: { body: Strict({ ...Named, reason: Reason }) } }, request => halt(ctx, request.body))
  app.post(
    "/resume",
    { schema: { body: Strict({ ...Named, reason: Reason, booksCompared: Flag, nothingPaid: Flag }) } },
    request => resume(ctx, request.body),
  )
  app.post(
    "/unstick",
    { schema: { body: Strict({ ...Named, nonce: Nonce, maxFeeGwei: Type.Optional(Gwei), reason: Reason }) } },
    ({ body: { nonce, maxFeeGwei, ...body } }) =>
      unstick(ctx, {
        ...body,
        nonce: BigInt(nonce),
        maxFee: maxFeeGwei === undefined ? undefined : BigInt(maxFeeGwei) * GWEI,
      }),
  )
  app.post(
    "/adopt",
    {
      schema: {
        body: Strict({
          hash: TxHash,
          payout: Type.Optional(PayoutId),
          foreign: Flag,
          reason: Type.Optional(Reason),
          by: By,
        }),
      },
    },
    ({ body }) => {
      if (body.foreign && body.reason === undefined)
        throw new ApiError("VALIDATION_ERROR", [{ path: "reason", message: "is required together with `foreign`" }])
      if (body.foreign && body.payout !== undefined)
        throw new ApiError("VALIDATION_ERROR", [
          {
            path: "payout",
            message: "can't be given together with `foreign`: a foreign transaction belongs to no payout",
          },
        ])
      return adopt(ctx, { ...body, hash: body.hash as Hash })
    },
  )
  app.post(
    "/retry",
    { schema: { body: Strict({ payout: PayoutId, reason: Type.Optional(Reason), by: By }) } },
    request => retryPayout(ctx, request.body),
  )
  app.post("/adopt-all", { schema: { body: Strict({ ...Named, reason: Type.Optional(Reason) }) } }, request =>
    adoptAll(ctx, request.body),
  )
  app.post(
    "/retry-all",
    { schema: { body: Strict({ held: Type.Optional(Held), reason: Type.Optional(Reason), by: By }) } },
    request => retryAll(ctx, request.body),
  )
  app.post(
    "/rotate-receipt-key",
    { schema: { body: Strict({ network: Type.Optional(NetworkName), reason: Reason, by: By }) } },
    request => rotateReceiptKey(ctx, request.body),
  )
  app.post("/cancel", { schema: { body: Strict({ payout: PayoutId, reason: Reason, by: By }) } }, request =>
    cancel(ctx, request.body),
  )
}

/** If too few endpoints agree, the network is at fault, not the service. */
const unasked = (error: Error): Error =>
  error instanceof RpcError
    ? new ApiError("CHAIN_UNAVAILABLE", undefined, `${error.message}. Nothing was changed: try again.`, error)
    : error
