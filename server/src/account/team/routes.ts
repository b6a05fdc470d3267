/** `/api/console/team`: a merchant's members and its invitations. */

import { addressField } from "../../platform/chain/address-field.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { noOwnerOf } from "../../platform/chain/known-contracts.ts"
import { isDevelopmentWallet } from "../../platform/config/live-mode.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import type { Member } from "../../platform/http/authenticate.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { approvedByWallet } from "../identity/check-wallet-lock.ts"
import { Deleted } from "../identity/schema.ts"
import { comparedEmail, createInvitation, type Invited, revokeInvitation } from "./invite-members.ts"
import { changeMember, guardedChange, holdRight, isGuarded, lockMember, removeMember } from "./manage-members.ts"
import {
  InvitationCreate,
  InvitationCreated,
  InvitationId,
  InvitationList,
  MemberChange,
  MemberId,
  Team,
  TeamMember,
} from "./schema.ts"

const tags = ["team"]

export function teamRoutes(app: Server, ctx: Context): void {
  memberRoutes(app, ctx)
  invitationRoutes(app, ctx)
}

const members = ({ db }: Pick<Context, "db">, merchantId: string) =>
  db
    .selectFrom("members")
    .innerJoin("persons", "persons.id", "members.person_id")
    .select(["person_id", "iss", "sub", "email", "role", "money_per_day", "members.created_at"])
    .where("merchant_id", "=", merchantId)

function memberRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/team",
    operationId: "listMembers",
    summary: "The members of the merchant and their roles",
    tags,
    answer: Team,
    source: (read, merchantId) =>
      newestFirst(members(read, merchantId), { at: "members.created_at", id: "members.person_id" }),
    show: (_, rows) => rows.map(memberOf),
  })

  app.put(
    "/api/console/team/:id",
    {
      schema: {
        operationId: "changeMember",
        summary: "Changes a member's role, starting with the member's next request",
        description:
          "The last owner's role can't change. A member with the role support accepts, returns, refunds, captures and voids up to `moneyPerDay`, and nothing while it is 0. API keys that the member may no longer grant end in seven days, unless another member adopts them. Device keys end immediately. While the wallet lock is on, a change to owner, admin or finance, or a higher `moneyPerDay`, needs the payout wallet's signature.",
        tags,
        params: MemberId,
        body: MemberChange,
        response: { 200: TeamMember },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true },
    },
    async request => {
      const by = callingMember(request)
      const { merchantId } = by
      const { id } = request.params
      const { body } = request
      if (body.moneyPerDay !== undefined && body.role !== "support")
        throw invalid("moneyPerDay", "is only for the role support")
      const approval = await approvedByWallet(ctx, request, merchantId, ctx => guardedChange(ctx, merchantId, id, body))
      await inTransaction(ctx, async ctx => {
        await lockMember(ctx, merchantId, id)
        await approval.hold(ctx)
        await holdRight(ctx, by, "team")
        await changeMember(ctx, merchantId, id, body)
      })
      return memberOf(await members(ctx, merchantId).where("person_id", "=", id).executeTakeFirstOrThrow())
    },
  )

  app.delete(
    "/api/console/team/:id",
    {
      schema: {
        operationId: "removeMember",
        summary: "Removes a member, starting with the member's next request; any member may leave",
        description:
          "The last owner can't leave or be removed. The member's API keys end in seven days, unless another member adopts them; device keys end immediately.",
        tags,
        params: MemberId,
        response: { 200: Deleted },
      },
      config: { errors: ["INVALID_OPERATION", "ROLE_REQUIRED"] },
    },
    async request => {
      const by = callingMember(request)
      const { id } = request.params
      await inTransaction(ctx, ctx => removeMember(ctx, by, id))
      return { deleted: true as const, id }
    },
  )
}

function invitationRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/team/invitations",
    {
      schema: {
        operationId: "inviteMember",
        summary: "Invites a person by e-mail address or wallet, and shows the token only once",
        description:
          "The invitation works once, for seven days, for the invited wallet or for the person whose identity provider has verified the address. While the wallet lock is on, an invitation as owner, admin or finance needs the payout wallet's signature.",
        tags,
        body: InvitationCreate,
        response: { 201: InvitationCreated },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true },
    },
    async (request, reply) => {
      const by = callingMember(request)
      const { role } = request.body
      const invited = invitedOf(ctx, request.body)
      const words = {
        action: "Invite member",
        subject: invited.email ?? invited.wallet ?? "",
        from: "No member",
        to: `Role: ${role}`,
      }
      const approval = await approvedByWallet(ctx, request, by.merchantId, async () =>
        isGuarded(role) ? { words } : undefined,
      )
      const { token, row } = await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        await holdRight(ctx, by, "team")
        return await createInvitation(ctx, by, { invited, role, byWallet: approval.signer !== undefined })
      })
      reply.code(201)
      return { ...invitationOf(row), token }
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/team/invitations",
    operationId: "listInvitations",
    summary: "The invitations that can still be accepted, without the tokens",
    tags,
    answer: InvitationList,
    source: ({ db }, merchantId) =>
      newestFirst(
        db
          .selectFrom("team_invitations")
          .selectAll()
          .where("merchant_id", "=", merchantId)
          .where("expires_at", ">", ctx.now()),
      ),
    show: (_, rows) => rows.map(invitationOf),
  })

  app.delete(
    "/api/console/team/invitations/:id",
    {
      schema: {
        operationId: "revokeInvitation",
        summary: "Revokes an invitation immediately",
        tags,
        params: InvitationId,
        response: { 200: Deleted },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      await inTransaction(ctx, ctx => revokeInvitation(ctx, merchantId, id))
      return { deleted: true as const, id }
    },
  )
}

function callingMember({ member }: { member: Member | undefined }): Member {
  if (!member) throw new ApiError("UNAUTHORIZED")
  return member
}

/** The e-mail address or wallet that an invitation names; throws `VALIDATION_ERROR`. */
function invitedOf({ chain, settings }: Context, given: { email?: string; wallet?: string; chain?: string }): Invited {
  if ((given.email === undefined) === (given.wallet === undefined))
    throw invalid("", "must name either an `email` or a `wallet`")
  if (given.email !== undefined) return { email: comparedEmail(given.email), wallet: null }
  const { networks } = chain
  const network = given.chain === undefined ? networks[0] : networks.find(({ name }) => name === given.chain)
  if (!network) throw invalid("chain", `must be one of: ${networks.map(({ name }) => name).join(", ")}`)
  const address = addressField("wallet", given.wallet ?? "")
  const fault =
    settings.mode === "live" && isDevelopmentWallet(address)
      ? "is a well-known development account: anyone could sign in as this member"
      : noOwnerOf(address)
  if (fault) throw invalid("wallet", fault)
  return { email: null, wallet: `eip155:${network.chainId}:${checksummed(address)}` }
}

type MemberRow = Pick<Row<"members">, "person_id" | "role" | "money_per_day" | "created_at"> &
  Pick<Row<"persons">, "iss" | "sub" | "email">

const memberOf = ({ person_id: id, iss: issuer, sub: subject, email, role, money_per_day, created_at }: MemberRow) => ({
  id,
  issuer,
  subject,
  email,
  role,
  moneyPerDay: role === "support" ? money_per_day : null,
  joinedAt: created_at.toISOString(),
})

const invitationOf = ({ id, role, email, wallet, created_at, expires_at }: Row<"team_invitations">) => ({
  id,
  role,
  email,
  wallet,
  createdAt: created_at.toISOString(),
  expiresAt: expires_at.toISOString(),
})
