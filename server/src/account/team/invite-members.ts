/**
 * Invitations to become a member. An invitation names a verified e-mail address or a wallet. Only the person named can
 * accept the invitation, once within seven days, with the token that was shown at creation.
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

/** Who may accept an invitation: an e-mail address or a wallet. */
export type Invited = { email: string; wallet: null } | { email: null; wallet: string }

const hashOf = (token: string): string => createHash("sha256").update(token).digest("hex")

/**
 * The form of an e-mail address for comparison. Only ASCII letters are converted to lower case. Some other letters
 * would become ASCII letters, so a different address would match.
 */
export const comparedEmail = (email: string): string => email.replaceAll(/[A-Z]/g, letter => letter.toLowerCase())

/**
 * Creates an invitation and returns its token, which is shown only once. Needs a transaction that holds the right
 * `team`. Throws `INVALID_OPERATION` if the team has a hundred members, including pending invitations.
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
        // Browsers never send the fragment, and so the token, to a server. The page asks before using the token.
        lines: [
          `You are invited with the role ${role}. The invitation is valid until ${row.expires_at.toISOString().slice(0, 10)}. Sign in with this address to accept.`,
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
    `A merchant has at most ${MEMBERS_PER_MERCHANT} members, including invited people. First remove a member or revoke an invitation.`,
  )
}

/** Revokes an invitation. Needs a transaction. Throws `NOT_FOUND` for an unknown id or another merchant's. */
export async function revokeInvitation(ctx: TxContext, merchantId: string, id: string): Promise<void> {
  const gone = await ctx.db
    .deleteFrom("team_invitations")
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (gone.numDeletedRows === 0n) throw new ApiError("NOT_FOUND")
}

/**
 * Makes a person a member with an invitation's token, uses the token up and returns the merchant's id. Call it inside a
 * transaction. Throws `NOT_FOUND` if no open invitation has the token, `INVITATION_REFUSED` if this person can't accept
 * it now, and `INVALID_OPERATION` if the person is already a member.
 */
export async function acceptInvitation(ctx: TxContext, subject: Subject, token: string): Promise<string> {
  const named = await openInvitation(ctx, token)
  // Checked before any lock, so that a stranger with a leaked token can't block anyone.
  checkAddressee(ctx, subject, named)
  const merchantId = named.merchant_id
  await lockMerchant(ctx.db, merchantId)
  const { id, role, invited_by, by_wallet } = await openInvitation(ctx, token)
  const inviter = await roleOf(ctx, merchantId, invited_by)
  if (inviter === undefined || !hasRight(inviter, "team"))
    throw refused("The member who sent this invitation may no longer invite. Ask an owner for a new one.")
  if (isGuarded(role) && !by_wallet && (await isLocked(ctx, merchantId)))
    throw refused("The wallet lock was switched on after this invitation was sent. Ask an owner for a new one.")
  const personId = await lockPerson(ctx, subject)
  if ((await roleOf(ctx, merchantId, personId)) !== undefined)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "You are already a member of this merchant. An owner can change your role.",
    )
  // The person's earlier invitations are deleted too. Otherwise a removed member could come back with an earlier
  // invitation.
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
    "No open invitation has this token. It was accepted or revoked, or is older than seven days.",
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
        ? "This invitation is for another wallet. Sign in with the wallet and network that it names."
        : "This invitation is for another e-mail address, or your identity provider does not confirm that yours is verified. Sign in with the address that the invitation names.",
    )
}

const refused = (message: string) => new ApiError("INVITATION_REFUSED", undefined, message)

/** Deletes expired invitations. */
export async function forgetExpiredInvitations(ctx: Context): Promise<void> {
  await ctx.db.deleteFrom("team_invitations").where("expires_at", "<=", ctx.now()).execute()
}
