/** The members of a merchant: their roles, and how they leave. A merchant always has an owner. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Member } from "../../platform/http/authenticate.ts"
import { checkRight, hasRight, type Right, type Role, rightTable } from "../../platform/http/rights.ts"
import type { ProtectedChange } from "../identity/check-wallet-lock.ts"

/** How many members a merchant may have, with those who are invited. */
export const MEMBERS_PER_MERCHANT = 100

/** The roles that decide about money, or about who does: with the wallet lock on the payout wallet signs for them. */
const GUARDED: readonly Role[] = ["owner", "admin", "finance"]

/** Whether a new role needs the payout wallet's signature while the lock is on: it decides about money, and may do more than before. */
export const isGuarded = (role: Role, before?: Role): boolean =>
  GUARDED.includes(role) &&
  (Object.keys(rightTable) as Right[]).some(
    right => hasRight(role, right) && !(before !== undefined && hasRight(before, right)),
  )

/** The role of a person at a merchant; undefined where there is none. */
export async function roleOf(ctx: TxContext, merchantId: string, personId: string): Promise<Role | undefined> {
  const row = ctx.db.selectFrom("members").select("role").where("person_id", "=", personId)
  return (await row.where("merchant_id", "=", merchantId).executeTakeFirst())?.role
}

/**
 * Locks a member's row until the transaction ends: it waits for the transactions that the member has begun. Call it before the
 * merchant's row is locked, as those may wait for that one.
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
 * Locks the merchant's row, and checks again that who asks has a right: the role may have changed since the request began. Throws
 * `ROLE_REQUIRED`, or `MERCHANT_REQUIRED` for who is no member any more.
 */
export async function holdRight(ctx: TxContext, { merchantId, personId }: Member, right: Right): Promise<void> {
  await lockMerchant(ctx.db, merchantId)
  const role = await roleOf(ctx, merchantId, personId)
  if (role === undefined) throw new ApiError("MERCHANT_REQUIRED", undefined, "You are not a member of this merchant.")
  checkRight({ role }, right)
}

/** What a change of a role is to the wallet lock; undefined where the lock does not protect it. */
export async function guardedChange(
  ctx: TxContext,
  merchantId: string,
  personId: string,
  role: Role,
): Promise<ProtectedChange | undefined> {
  const before = await roleOf(ctx, merchantId, personId)
  if (before === undefined || !isGuarded(role, before)) return undefined
  const person = await ctx.db
    .selectFrom("persons")
    .select(["email", "sub"])
    .where("id", "=", personId)
    .executeTakeFirst()
  const subject = `${person?.email ?? person?.sub} (${personId})`
  return { words: { action: "Change member", subject, from: `Role: ${before}`, to: `Role: ${role}` } }
}

/**
 * Changes a member's role; call it inside a transaction that holds the right. Throws `NOT_FOUND`, and `INVALID_OPERATION` for the
 * last owner.
 */
export async function changeRole(ctx: TxContext, merchantId: string, personId: string, role: Role): Promise<void> {
  const before = await roleOf(ctx, merchantId, personId)
  if (before === undefined) throw new ApiError("NOT_FOUND")
  if (before === "owner" && role !== "owner") await checkOtherOwner(ctx, merchantId)
  await ctx.db
    .updateTable("members")
    .set({ role })
    .where("merchant_id", "=", merchantId)
    .where("person_id", "=", personId)
    .execute()
}

/**
 * Removes a member, or lets one leave: who is the member may always, others need the right `team`. Call it inside a transaction. Throws
 * `ROLE_REQUIRED`, `NOT_FOUND`, and `INVALID_OPERATION` for the last owner.
 */
export async function removeMember(ctx: TxContext, by: Member, personId: string): Promise<void> {
  const { merchantId } = by
  await lockMember(ctx, merchantId, personId)
  await holdRight(ctx, by, by.personId === personId ? "leave" : "team")
  const role = await roleOf(ctx, merchantId, personId)
  if (role === undefined) throw new ApiError("NOT_FOUND")
  if (role === "owner") await checkOtherOwner(ctx, merchantId)
  await ctx.db.deleteFrom("members").where("merchant_id", "=", merchantId).where("person_id", "=", personId).execute()
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
      "This is the merchant's last owner. Make another member an owner first.",
    )
}
