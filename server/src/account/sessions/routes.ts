/** `/api/console/config`, and browser sessions: starting, listing and ending them. */
import type { FastifyRequest } from "fastify"
import { withActor } from "../../platform/actor.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { actorOf } from "../../platform/http/actor.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { isLoopbackHost } from "../../platform/http/hosts.ts"
import type { Server } from "../../platform/http/server.ts"
import { caip10Of, proveWallet, signInDoor, useProof } from "../identity/prove-wallet.ts"
import { Deleted } from "../identity/schema.ts"
import { consoleOrigin, placeOf } from "./console-place.ts"
import { beginSession, giveCookie, sessionHash } from "./open-sessions.ts"
import { endSession, endSessionWith, sessionsOf } from "./queries.ts"
import { consoleConfig, sandboxMerchants } from "./read-config.ts"
import { ConsoleConfig, SessionBegin, SessionBegun, SessionId, SessionList, SignedOut } from "./schema.ts"
import { endOf, isFromConsole } from "./session.ts"

const tags = ["sign-in"]

export function sessionRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/config",
    {
      schema: {
        operationId: "readConsoleConfig",
        summary: "What a console needs before anyone is signed in",
        tags,
        response: { 200: ConsoleConfig },
      },
    },
    async () => await consoleConfig(ctx),
  )

  app.post(
    "/api/console/session",
    {
      schema: {
        operationId: "beginSession",
        summary: "Signs a browser in to the console with a wallet's signature",
        description:
          "Only for the console's own page (`Origin` must be that of `CONSOLE_URL`). The message comes from `POST /api/auth/nonce`, as for `POST /api/auth/verify`. If the console has its own host, the message names that host. Sets the session's cookie, and ends the browser's previous session. Signing in creates no merchant.",
        tags,
        body: SessionBegin,
        response: { 201: SessionBegun },
      },
      config: { errors: ["FOREIGN_REQUEST", "SIGNATURE_REFUSED", "CHAIN_UNAVAILABLE"] },
    },
    async (request, reply) => {
      checkOrigin(ctx, request)
      const begun = await begin(ctx, request, request.body)
      giveCookie(ctx, reply, begun.secret)
      reply.code(201)
      return shownOf(begun.row)
    },
  )

  app.delete(
    "/api/console/session",
    {
      schema: {
        operationId: "endOwnSession",
        summary: "Signs this browser out",
        description: "Ends the cookie's session and removes the cookie. Without a cookie it does nothing.",
        tags,
        response: { 200: SignedOut },
      },
      config: { errors: ["FOREIGN_REQUEST"] },
    },
    async (request, reply) => {
      const hash = sessionHash(ctx, request.headers)
      if (hash !== undefined && !isFromConsole(request.headers)) throw new ApiError("FOREIGN_REQUEST")
      if (hash) await endSessionWith(ctx, hash)
      giveCookie(ctx, reply)
      return { signedOut: true as const }
    },
  )

  app.get(
    "/api/console/sessions",
    {
      schema: {
        operationId: "listSessions",
        summary: "The browsers in which you are signed in, newest first",
        tags,
        response: { 200: SessionList },
      },
    },
    async request => ({
      data: (await sessionsOf(ctx, personOf(request))).map(row => ({
        ...shownOf(row),
        current: row.id === request.sessionId,
        address: row.address,
        userAgent: row.user_agent,
      })),
    }),
  )

  app.delete(
    "/api/console/sessions/:id",
    {
      schema: {
        operationId: "revokeSession",
        summary: "Signs one of your browsers out immediately",
        tags,
        params: SessionId,
        response: { 200: Deleted },
      },
    },
    async (request, reply) => {
      const { id } = request.params
      if (!(await endSession(ctx, personOf(request), id))) throw new ApiError("NOT_FOUND")
      if (id === request.sessionId) giveCookie(ctx, reply)
      return { deleted: true as const, id }
    },
  )
}

/** The person of a console request; throws `UNAUTHORIZED` if the caller is unknown. */
function personOf({ subject }: FastifyRequest): Subject {
  if (!subject) throw new ApiError("UNAUTHORIZED")
  return subject
}

/**
 * Throws `FOREIGN_REQUEST` for a sign-in that the console's own page did not send. Otherwise a page could sign its
 * visitors in to another account and see what they enter.
 */
function checkOrigin({ settings }: Context, { headers }: FastifyRequest): void {
  const isHere = placeOf(settings, headers.host) === "here"
  if (!isHere || headers.origin !== consoleOrigin(settings)) throw new ApiError("FOREIGN_REQUEST")
}

interface Given {
  message?: string
  signature?: string
  merchantId?: string
}

async function begin(ctx: Context, request: FastifyRequest, { message, signature, merchantId }: Given) {
  if (merchantId !== undefined) {
    const subject = await sandboxMerchant(ctx, request, merchantId)
    return await inTransaction(ctx, ctx => beginSession(ctx, request, subject, "sandbox"))
  }
  if (message === undefined) throw invalid("message", "is required")
  if (signature === undefined) throw invalid("signature", "is required")
  const door = signInDoor(ctx, request.headers.host)
  const proof = await proveWallet(ctx, door, { message, signature })
  const subject = { iss: ctx.settings.baseUrl, sub: caip10Of(proof) }
  return await withActor(actorOf(request, subject), () =>
    inTransaction(ctx, async ctx => {
      await useProof(ctx, door, proof)
      return await beginSession(ctx, request, subject, "wallet")
    }),
  )
}

/** The subject of a sandbox merchant; throws `VALIDATION_ERROR` for any other merchant, and outside a sandbox. */
async function sandboxMerchant(ctx: Context, { headers }: FastifyRequest, id: string): Promise<Subject> {
  if (ctx.settings.mode !== "sandbox") throw invalid("merchantId", "works only in the sandbox")
  if (!isLoopbackHost(headers.host)) throw new ApiError("FOREIGN_REQUEST")
  if (!(await sandboxMerchants(ctx)).some(merchant => merchant.id === id))
    throw invalid("merchantId", "must be the id of one of the sandbox's merchants")
  return { iss: ctx.settings.oidcIssuer, sub: id }
}

const shownOf = (row: Row<"sessions">) => ({
  id: row.id,
  way: row.way,
  createdAt: row.created_at.toISOString(),
  lastSeenAt: row.last_seen_at.toISOString(),
  expiresAt: endOf(row).toISOString(),
})
