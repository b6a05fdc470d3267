/** A merchant's members: their roles, and how they leave. A merchant always has an owner. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Member } from "../../platform/http/authenticate.ts"
import { checkRight, hasRight, type Right, type Role, rightTable } from "../../platform/http/rights.ts"
import { newId } from "../../platform/ids.ts"
import type { ProtectedChange } from "../identity/check-wallet-lock.ts"
import { endKeysBeyond } from "../identity/end-keys-beyond.ts"
import { isMailing, mailMembers, mailTo } from "../notifications/write-mails.ts"

/** How many members a merchant may have, including invited ones. */
export const MEMBERS_PER_MERCHANT = 100

/**
 * Roles that decide about money or roles. Under the wallet lock, giving someone such a role needs the payout wallet's
 * signature.
 */
const GUARDED: readonly Role[] = ["owner", "admin", "finance"]

/**
 * Whether a new role needs the payout wallet's signature under the lock: it is guarded and allows more than the role
 * before.
 */
export const isGuarded = (role: Role, before?: Role): boolean =>
  GUARDED.includes(role) &&
  (Object.keys(rightTable) as Right[]).some(
    right => hasRight(role, right) && !(before !== undefined && hasRight(before, right)),
  )

/** The role of a person at a merchant; undefined if the person is not a member. */
export async function roleOf(ctx: TxContext, merchantId: string, personId: string): Promise<Role | undefined> {
  const row = ctx.db.selectFrom("members").select("role").where("person_id", "=", personId)
  return (await row.where("merchant_id", "=", merchantId).executeTakeFirst())?.role
}

/**
 * Locks a member's row until the transaction ends, after the member's open transactions. Call it before the merchant's
 * row is locked, because those transactions may wait for that row.
 */
export async function lockMember(ctx: TxContext, merchantId: string, personId: string): Promise<void> {
  await ctx.db
    .selectFrom("members")
    .select("role")
    .where("person_id", "=", personId)
    .where("merchant_id", "=", merchantId)
    .forNoKeyUpdate()
    .execute()
}

/**
 * Locks the merchant's row and checks the caller's right again, because the role may have changed since the request
 * started. Throws `ROLE_REQUIRED`, or `MERCHANT_REQUIRED` for a former member.
 */
export async function holdRight(ctx: TxContext, { merchantId, personId }: Member, right: Right): Promise<void> {
  await lockMerchant(ctx.db, merchantId)
  const role = await roleOf(ctx, merchantId, personId)
  if (role === undefined) throw new ApiError("MERCHANT_REQUIRED", undefined, "You are not a member of this merchant.")
  checkRight({ role }, right)
}

/** A member's role, and the daily amount that a support member may decide about. */
interface MemberTerms {
  role: Role
  moneyPerDay: number
}

/**
 * A member's terms after a change. A support member's limit stays if the change names none. In other roles the limit is
 * 0.
 */
const changedTerms = (before: MemberTerms, { role, moneyPerDay }: MemberChange): MemberTerms => ({
  role,
  moneyPerDay: role === "support" ? (moneyPerDay ?? before.moneyPerDay) : 0,
})

export interface MemberChange {
  role: Role
  moneyPerDay?: number
}

async function termsOf(ctx: TxContext, merchantId: string, personId: string): Promise<MemberTerms | undefined> {
  const row = ctx.db
    .selectFrom("members")
    .select(["role", "money_per_day as moneyPerDay"])
    .where("person_id", "=", personId)
    .where("merchant_id", "=", merchantId)
  return await row.executeTakeFirst()
}

/** How the wallet lock describes a change of a member; undefined if the lock does not protect it. */
export async function guardedChange(
  ctx: TxContext,
  merchantId: string,
  personId: string,
  change: MemberChange,
): Promise<ProtectedChange | undefined> {
  const before = await termsOf(ctx, merchantId, personId)
  if (before === undefined) return undefined
  const after = changedTerms(before, change)
  if (!isGuarded(after.role, before.role) && after.moneyPerDay <= before.moneyPerDay) return undefined
  const person = await ctx.db
    .selectFrom("persons")
    .select(["email", "sub"])
    .where("id", "=", personId)
    .executeTakeFirst()
  const subject = `${person?.email ?? person?.sub} (${personId})`
  return { words: { action: "Change member", subject, from: inWords(before), to: inWords(after) } }
}

const inWords = ({ role, moneyPerDay }: MemberTerms): string =>
  `Role: ${role}${role === "support" ? `; decides about up to ${moneyPerDay} of each token per day` : ""}`

/**
 * Changes a member's role, and a support member's limit. Needs a transaction that holds the right. Throws `NOT_FOUND`,
 * or `INVALID_OPERATION` for the last owner.
 */
export async function changeMember(
  ctx: TxContext,
  merchantId: string,
  personId: string,
  change: MemberChange,
): Promise<void> {
  const before = await termsOf(ctx, merchantId, personId)
  if (before === undefined) throw new ApiError("NOT_FOUND")
  const { role, moneyPerDay: money_per_day } = changedTerms(before, change)
  if (before.role === "owner" && role !== "owner") await checkOtherOwner(ctx, merchantId)
  if (before.role !== role)
    await mailRole(
      ctx,
      { merchantId, personId, isOwners: [before.role, role].includes("owner") },
      `The role of NAME was changed from ${before.role} to ${role}.`,
    )
  await ctx.db
    .updateTable("members")
    .set({ role, money_per_day })
    .where("merchant_id", "=", merchantId)
    .where("person_id", "=", personId)
    .execute()
  await endKeysBeyond(ctx, { merchantId, personId, role })
}

/**
 * Removes a member. Members may always leave themselves; removing someone else needs the right `team`. Call it inside a
 * transaction. Throws `ROLE_REQUIRED`, `NOT_FOUND`, or `INVALID_OPERATION` for the last owner.
 */
export async function removeMember(ctx: TxContext, by: Member, personId: string): Promise<void> {
  const { merchantId } = by
  await lockMember(ctx, merchantId, personId)
  await holdRight(ctx, by, by.personId === personId ? "leave" : "team")
  const role = await roleOf(ctx, merchantId, personId)
  if (role === undefined) throw new ApiError("NOT_FOUND")
  if (role === "owner") await checkOtherOwner(ctx, merchantId)
  await mailRole(
    ctx,
    { merchantId, personId, isOwners: role === "owner" },
    `NAME, whose role was ${role}, is no longer a member.`,
  )
  await ctx.db.deleteFrom("members").where("merchant_id", "=", merchantId).where("person_id", "=", personId).execute()
  await endKeysBeyond(ctx, { merchantId, personId, role: undefined })
}

/**
 * Mails a member's change to that person, or an owner's change to all owners and admins. Call it before the change is
 * written. NAME in the sentence stands for the person.
 */
export async function mailRole(
  ctx: TxContext,
  { merchantId, personId, isOwners }: { merchantId: string; personId: string; isOwners: boolean },
  sentence: string,
): Promise<void> {
  if (!isMailing(ctx)) return
  const person = await ctx.db
    .selectFrom("persons")
    .select(["email", "sub"])
    .where("id", "=", personId)
    .executeTakeFirst()
  const mail = {
    key: `member ${newId("evt")}`,
    subject: "A membership was changed",
    lines: [sentence.replace("NAME", person?.email ?? person?.sub ?? personId)],
    path: "/team",
  }
  if (isOwners) await mailMembers(ctx, merchantId, "security", mail)
  const addresses = person?.email ? [person.email] : []
  await mailTo(ctx, { merchantId, notice: "membership", addresses }, mail)
}

async function checkOtherOwner(ctx: TxContext, merchantId: string): Promise<void> {
  const { owners } = await ctx.db
    .selectFrom("members")
    .select(sql<number>`count(*)::int`.as("owners"))
    .where("merchant_id", "=", merchantId)
    .where("role", "=", "owner")
    .executeTakeFirstOrThrow()
  if (owners < 2)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "This is the merchant's last owner. First make another member an owner.",
    )
}
