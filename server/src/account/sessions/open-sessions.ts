/** Finds a request's session by its cookie; starts and ends sessions. */
import type { IncomingHttpHeaders } from "node:http"
import type { FastifyReply, FastifyRequest } from "fastify"
import { type Context, type TxContext, wallTime } from "../../platform/context.ts"
import type { Row, SignInWay } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { actorOf } from "../../platform/http/actor.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { cookieIn, setCookie } from "../../platform/http/cookies.ts"
import { newId, randomText } from "../../platform/ids.ts"
import type { SessionSource } from "../identity/open-identities.ts"
import { plainWords } from "../notifications/notices.ts"
import { isMailing, mailTo } from "../notifications/write-mails.ts"
import { cookieNames, isSecure, placeOf } from "./console-place.ts"
import { endSessionWith, insertSession, lastingSessions, noteSeen, sessionsByHash } from "./queries.ts"
import { hashOf, isFromConsole, isSameHash, LONGEST_MS, SECRET_CHARACTERS } from "./session.ts"

/** A person created this recently is signing in for the first time. */
const FIRST_MS = 60_000

const FORM = new RegExp(`^[0-9A-Za-z]{${SECRET_CHARACTERS}}$`)

/** Generates a cookie's secret: 256 random bits. */
export const newSecret = (): string => randomText(SECRET_CHARACTERS)

/**
 * The hash of a request's session secret. The hash is undefined without a cookie, or if the console is not at this
 * address, and empty if the secret has a wrong form.
 */
export function sessionHash(
  { settings }: Pick<TxContext, "settings">,
  headers: IncomingHttpHeaders,
): string | undefined {
  const secret = cookieIn(headers.cookie, cookieNames(settings).session)
  if (secret === undefined || placeOf(settings, headers.host) !== "here") return undefined
  return FORM.test(secret) ? hashOf(secret) : ""
}

/** Answers the server's questions about session cookies. Each request reads its session, and no session is cached. */
export function openSessions(ctx: Context): SessionSource {
  return {
    hashIn: headers => {
      const hash = sessionHash(ctx, headers)
      // Refused before any read. Otherwise, any page could use up its visitor's request quota.
      if (hash !== undefined && !isFromConsole(headers)) throw new ApiError("FOREIGN_REQUEST")
      return hash
    },
    byHash: hashes => sessionsByHash(ctx, hashes),
    noteSeen: session => noteSeen(ctx, session),
    lasting: ids => lastingSessions(ctx, ids),
  }
}

/** The session of a request for a page, which may come from another site's link; undefined without a valid session. */
export async function sessionOf(ctx: TxContext, { headers }: FastifyRequest): Promise<Row<"sessions"> | undefined> {
  const hash = sessionHash(ctx, headers)
  const row = hash ? (await sessionsByHash(ctx, [hash])).get(hash) : undefined
  return row && hash && isSameHash(row.hash, hash) ? row : undefined
}

/**
 * Starts a person's session in this browser with a new secret, and ends the browser's earlier one. The answer sets the
 * cookie. Call it in a transaction, and {@link giveCookie} after the commit.
 */
export async function beginSession(
  ctx: TxContext,
  request: FastifyRequest,
  subject: Subject,
  way: SignInWay,
): Promise<{ row: Row<"sessions">; secret: string }> {
  const { address = null, userAgent: user_agent = null } = actorOf(request, subject) ?? {}
  const secret = newSecret()
  const now = wallTime(ctx)
  const row = {
    id: newId("ses"),
    hash: hashOf(secret),
    iss: subject.iss,
    sub: subject.sub,
    way,
    address,
    user_agent,
    created_at: now,
    last_seen_at: now,
    expires_at: new Date(now.getTime() + LONGEST_MS),
  }
  const before = sessionHash(ctx, request.headers)
  if (before) await endSessionWith(ctx, before)
  await mailNewDevice(ctx, row)
  await insertSession(ctx, row)
  return { row, secret }
}

/**
 * Mails a person who signs in with a browser that none of the person's sessions has used. A first sign-in is not
 * mailed.
 */
async function mailNewDevice(
  ctx: TxContext,
  { iss, sub, user_agent, address }: Pick<Row<"sessions">, "iss" | "sub" | "user_agent" | "address">,
): Promise<void> {
  if (!isMailing(ctx)) return
  const person = await ctx.db
    .selectFrom("persons")
    .select(["email", "created_at"])
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .executeTakeFirst()
  if (!person?.email) return
  const known = await ctx.db
    .selectFrom("sessions")
    .select("user_agent")
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .execute()
  const isFirst = person.created_at.getTime() > ctx.now().getTime() - FIRST_MS
  if (isFirst || known.some(each => each.user_agent === user_agent)) return
  await mailTo(
    ctx,
    { merchantId: null, notice: "sign_in", addresses: [person.email] },
    {
      // Ended sessions are deleted, so this key limits the mails to one per browser in 30 days.
      key: `sign_in ${sub} ${hashOf(user_agent ?? "")}`,
      subject: "A new browser signed in to your console",
      lines: [
        `From: ${address ?? "an unknown address"}`,
        `Browser: ${plainWords(user_agent ?? "unknown")}`,
        "",
        "If this was not you, end that session and change your password.",
      ],
      path: "/sessions",
    },
  )
}

/** Sets the browser's session cookie, or removes it if there is no secret. */
export function giveCookie({ settings }: Pick<TxContext, "settings">, reply: FastifyReply, secret?: string): void {
  const cookie = {
    name: cookieNames(settings).session,
    value: secret ?? "",
    isSecure: isSecure(settings),
    sameSite: "Strict",
    maxAgeS: secret === undefined ? 0 : LONGEST_MS / 1_000,
  } as const
  void reply.header("set-cookie", setCookie(cookie))
}
