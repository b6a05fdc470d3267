/**
 * Invitations to become a member. An invitation names a verified e-mail address or a wallet, and only that person accepts it, once,
 * within seven days, with the token that was shown when it was made.
 */
import { createHash, randomBytes } from "node:crypto"
import { sql } from "kysely"
import type { Context, TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Member, Subject } from "../../platform/http/authenticate.ts"
import { hasRight, type Role } from "../../platform/http/rights.ts"
import { newId } from "../../platform/ids.ts"
import { isLocked } from "../identity/check-wallet-lock.ts"
import { lockPerson } from "../identity/find-member.ts"
import { mailTo } from "../notifications/write-mails.ts"
import { isGuarded, MEMBERS_PER_MERCHANT, mailRole, roleOf } from "./manage-members.ts"

const LIFE_MS = 7 * 86_400_000
const TOKEN_BYTES = 32

/** Who may accept an invitation: one of the two. */
export type Invited = { email: string; wallet: null } | { email: null; wallet: string }

const hashOf = (token: string): string => createHash("sha256").update(token).digest("hex")

/**
 * An address as it is compared. Letters of ASCII alone are lowered: some other letters become one of these, and would let somebody else
 * in.
 */
export const comparedEmail = (email: string): string => email.replaceAll(/[A-Z]/g, letter => letter.toLowerCase())

/**
 * Makes an invitation, and returns its token for the only time. Call it inside a transaction that holds the right `team`. Throws
 * `INVALID_OPERATION` where the team has a hundred members, with those who are invited.
 */
export async function createInvitation(
  ctx: TxContext,
  by: Member,
  { invited, role, byWallet }: { invited: Invited; role: Role; byWallet: boolean },
): Promise<{ token: string; row: Row<"team_invitations"> }> {
  const now = ctx.now()
  await checkRoom(ctx, by.merchantId, now)
  const token = randomBytes(TOKEN_BYTES).toString("base64url")
  const row = await ctx.db
    .insertInto("team_invitations")
    .values({
      ...invited,
      id: newId("tinv"),
      merchant_id: by.merchantId,
      hash: hashOf(token),
      role,
      invited_by: by.personId,
      by_wallet: byWallet,
      created_at: now,
      expires_at: new Date(now.getTime() + LIFE_MS),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  if (invited.email !== null)
    await mailTo(
      ctx,
      { merchantId: by.merchantId, notice: "invitation", addresses: [invited.email] },
      {
        key: `invitation ${row.id}`,
        subject: "You are invited to a team",
        // The token is in the fragment, which no server on the way gets. The page asks before it uses it.
        lines: [
          `You are invited with the role ${role}, until ${row.expires_at.toISOString().slice(0, 10)}. Sign in with this address to accept.`,
        ],
        path: `/team/accept#${token}`,
        isSecret: true,
      },
    )
  return { token, row }
}

async function checkRoom(ctx: TxContext, merchantId: string, now: Date): Promise<void> {
  const { rows } = await sql<{
    total: number
  }>`select (select count(*) from members where merchant_id = ${merchantId})::int
    + (select count(*) from team_invitations where merchant_id = ${merchantId} and expires_at > ${now})::int as total`.execute(
    ctx.db,
  )
  if ((rows[0]?.total ?? 0) < MEMBERS_PER_MERCHANT) return
  throw new ApiError(
    "INVALID_OPERATION",
    undefined,
    `A merchant has at most ${MEMBERS_PER_MERCHANT} members, with those who are invited. Remove one or revoke an invitation first.`,
  )
}

/** Revokes an invitation; call it inside a transaction. Throws `NOT_FOUND` for what is not there, or another merchant's. */
export async function revokeInvitation(ctx: TxContext, merchantId: string, id: string): Promise<void> {
  const gone = await ctx.db
    .deleteFrom("team_invitations")
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (gone.numDeletedRows === 0n) throw new ApiError("NOT_FOUND")
}

/**
 * Makes a person a member by an invitation's token, which is used up; returns the merchant. Call it inside a transaction. Throws
 * `NOT_FOUND` for a token of no open invitation, `INVITATION_REFUSED` where it can't count for this person now, and
 * `INVALID_OPERATION` for a member.
 */
export async function acceptInvitation(ctx: TxContext, subject: Subject, token: string): Promise<string> {
  const named = await openInvitation(ctx, token)
  // Before anything is locked: a stranger with somebody else's token must hold nobody up.
  checkAddressee(ctx, subject, named)
  const merchantId = named.merchant_id
  await lockMerchant(ctx.db, merchantId)
  const { id, role, invited_by, by_wallet } = await openInvitation(ctx, token)
  const inviter = await roleOf(ctx, merchantId, invited_by)
  if (inviter === undefined || !hasRight(inviter, "team"))
    throw refused("Whoever made this invitation may not invite any more. Ask an owner for another.")
  if (isGuarded(role) && !by_wallet && (await isLocked(ctx, merchantId)))
    throw refused("The wallet lock was switched on after this invitation was made. Ask an owner for another.")
  const personId = await lockPerson(ctx, subject)
  if ((await roleOf(ctx, merchantId, personId)) !== undefined)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "You are a member of this merchant already. An owner can change your role.",
    )
  // With those that were sent before it: a member who is removed must not come back with one of them.
  await ctx.db
    .deleteFrom("team_invitations")
    .where("merchant_id", "=", merchantId)
    .where(eb => eb.or([eb("id", "=", id), eb("email", "=", named.email), eb("wallet", "=", named.wallet)]))
    .execute()
  if (role === "owner") await mailRole(ctx, { merchantId, personId, isOwners: true }, "NAME became an owner.")
  await ctx.db
    .insertInto("members")
    .values({ merchant_id: merchantId, person_id: personId, role, created_at: ctx.now() })
    .execute()
  return merchantId
}

async function openInvitation(ctx: TxContext, token: string): Promise<Row<"team_invitations">> {
  const found = await ctx.db
    .selectFrom("team_invitations")
    .selectAll()
    .where("hash", "=", hashOf(token))
    .where("expires_at", ">", ctx.now())
    .executeTakeFirst()
  if (found) return found
  throw new ApiError(
    "NOT_FOUND",
    undefined,
    "No open invitation has this token: it was accepted or revoked, or is older than seven days.",
  )
}

function checkAddressee(ctx: TxContext, subject: Subject, { email, wallet }: Row<"team_invitations">): void {
  const { iss, sub } = subject
  const isNamed =
    email === null
      ? iss === ctx.settings.baseUrl && sub === wallet
      : subject.email !== undefined && comparedEmail(subject.email) === email
  if (!isNamed)
    throw refused(
      email === null
        ? "This invitation is for another wallet. Sign in with the wallet that it names, on its network."
        : "This invitation is for another e-mail address, or your identity provider does not say that it verified yours. Sign in with the address that it names.",
    )
}

const refused = (message: string) => new ApiError("INVITATION_REFUSED", undefined, message)

/** Deletes the invitations that have expired. */
export async function forgetExpiredInvitations(ctx: Context): Promise<void> {
  await ctx.db.deleteFrom("team_invitations").where("expires_at", "<=", ctx.now()).execute()
}
