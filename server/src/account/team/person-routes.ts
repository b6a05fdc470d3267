/** `/api/console/me` and `/api/console/merchants`: who the person is, and the merchants that a person creates. */
import type { FastifyRequest } from "fastify"
import { type Context, inTransaction } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import type { Server } from "../../platform/http/server.ts"
import { lockPerson, makeMerchant, membershipsOf, storedPerson } from "../identity/find-member.ts"
import { acceptInvitation } from "./invite-members.ts"
import { readMe, shownMembership } from "./read-me.ts"
import { Accept, Me, Membership as MembershipShown, MerchantCreate } from "./schema.ts"

const tags = ["team"]

export function personRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/me",
    {
      schema: {
        operationId: "readMe",
        summary: "Who is signed in, and the merchants that this person is a member of",
        tags,
        response: { 200: Me },
      },
    },
    async request => {
      const { email = null } = await withEmail(ctx, request)
      return await readMe(ctx, callingPerson(request), email)
    },
  )

  app.post(
    "/api/console/merchants",
    {
      schema: {
        operationId: "createMerchant",
        summary: "Creates a merchant, owned by the person who creates it",
        description:
          "If sign-up is by invitation, each invited person can create one merchant. The first request to the console with the bearer token of a person who was never a member also creates one.",
        tags,
        body: MerchantCreate,
        response: { 201: MembershipShown },
      },
      config: { errors: ["SIGNUP_CLOSED", "INVALID_OPERATION"] },
    },
    async (request, reply) => {
      const subject = callingPerson(request)
      const { name = "" } = request.body
      const made = await inTransaction(ctx, async ctx =>
        makeMerchant(ctx, subject, await lockPerson(ctx, subject), name),
      )
      reply.code(201)
      return shownMembership(made)
    },
  )

  app.post(
    "/api/console/team/accept",
    {
      schema: {
        operationId: "acceptInvitation",
        summary: "Makes the signed-in person a member, with the token of an invitation",
        description:
          "Only the invited wallet can accept, or the person whose identity provider has verified the invited e-mail address (`email_verified`). The invitation works once, for seven days, while the member who sent it may still invite.",
        tags,
        body: Accept,
        response: { 200: MembershipShown },
      },
      config: { errors: ["NOT_FOUND", "INVITATION_REFUSED", "INVALID_OPERATION"] },
    },
    async request => {
      const subject = await withEmail(ctx, request)
      const merchantId = await inTransaction(ctx, ctx => acceptInvitation(ctx, subject, request.body.token))
      const accepted = (await membershipsOf(ctx, subject))?.find(each => each.merchantId === merchantId)
      if (!accepted) throw new ApiError("NOT_FOUND")
      return shownMembership(accepted)
    },
  )
}

function callingPerson({ subject }: { subject: Subject | undefined }): Subject {
  if (!subject) throw new ApiError("UNAUTHORIZED")
  return subject
}

/**
 * A request's person with the verified e-mail address: the one that the token names or, for a session, the one that the
 * sign-in recorded. If a token names none, an earlier address does not count.
 */
async function withEmail(ctx: Context, request: FastifyRequest): Promise<Subject> {
  const subject = callingPerson(request)
  if (request.sessionId === undefined) return subject
  const email = (await storedPerson(ctx, subject))?.email ?? undefined
  return { ...subject, ...(email === undefined ? {} : { email }) }
}
