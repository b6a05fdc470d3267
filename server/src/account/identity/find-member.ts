/**
 * People, identified by the issuer and subject of their tokens, and the merchants they are members of. Memberships and
 * roles are read at each request and never cached.
 */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Member, Subject } from "../../platform/http/authenticate.ts"
import { newId } from "../../platform/ids.ts"
import { newSecretRow } from "../webhooks/manage-secrets.ts"

/** How many merchants a person may own. */
const OWNED_PER_PERSON = 20

const NO_MERCHANT =
  "You are not a member of any merchant here. Accept an invitation with `POST /api/console/team/accept`, or create a merchant with `POST /api/console/merchants`."

/** One of a person's merchants. */
export interface Membership extends Member {
  name: string
  /** The zone in which its people read times; null: in that of each browser. */
  timeZone: string | null
}

/** A person's merchants, oldest membership first; undefined for a person who was never a member. */
export async function membershipsOf(ctx: TxContext, { iss, sub }: Subject): Promise<Membership[] | undefined> {
  const rows = await ctx.db
    .selectFrom("persons")
    .leftJoin("members", "members.person_id", "persons.id")
    .leftJoin("merchants", "merchants.id", "members.merchant_id")
    .select([
      "persons.id",
      "was_member",
      "members.merchant_id",
      "members.role",
      "members.money_per_day",
      "merchants.name",
      "merchants.time_zone",
    ])
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .orderBy("members.created_at")
    .orderBy("members.merchant_id")
    .execute()
  if (!rows[0]?.was_member) return undefined
  return rows.flatMap(({ id: personId, merchant_id: merchantId, role, money_per_day, name, time_zone: timeZone }) =>
    merchantId === null || role === null
      ? []
      : [{ personId, merchantId, role, moneyPerDay: money_per_day ?? 0, name: name ?? "", timeZone }],
  )
}

/**
 * The membership that a request is for: the one it names, or the only one. Throws `MERCHANT_REQUIRED` with the list if
 * the request does not name one of several merchants, or names one that is not the person's.
 */
export function chosenOf(memberships: readonly Membership[], merchantId: string | undefined): Membership {
  const chosen = merchantId === undefined ? memberships : memberships.filter(each => each.merchantId === merchantId)
  const [only, ...others] = chosen
  if (only && others.length === 0) return only
  if (memberships.length === 0) throw new ApiError("MERCHANT_REQUIRED", undefined, NO_MERCHANT)
  const details = memberships.map(({ merchantId: path, name, role }) => ({
    path,
    message: `${name === "" ? "Without a name" : name}, where your role is ${role}.`,
  }))
  throw new ApiError("MERCHANT_REQUIRED", details)
}

/** Records a person who signed in at the issuer, with the e-mail address that the issuer verified, if any. */
export async function noteSignIn(ctx: TxContext, { iss, sub, email = undefined }: Subject): Promise<void> {
  const row = { iss, sub, email: email ?? null, was_member: false, created_at: ctx.now() }
  await ctx.db
    .insertInto("persons")
    .values({ id: newId("per"), ...row })
    .onConflict(conflict => conflict.columns(["iss", "sub"]).doUpdateSet({ email: row.email }))
    .execute()
}

/**
 * Returns a new member's person id, creates the person if needed, and locks the row until the transaction ends. `email`
 * is recorded if the token proves it.
 */
export async function lockPerson(ctx: TxContext, { iss, sub, email }: Subject): Promise<string> {
  const { id } = await ctx.db
    .insertInto("persons")
    .values({ id: newId("per"), iss, sub, email: email ?? null, created_at: ctx.now() })
    .onConflict(conflict =>
      conflict.columns(["iss", "sub"]).doUpdateSet(eb => ({
        was_member: true,
        email: sql<string | null>`coalesce(${eb.ref("excluded.email")}, ${eb.ref("persons.email")})`,
      })),
    )
    .returning("id")
    .executeTakeFirstOrThrow()
  return id
}

/**
 * Creates a merchant that the person owns. Needs a transaction that locked the person. Throws `SIGNUP_CLOSED` if the
 * person needs an invitation and has no unused one, and `INVALID_OPERATION` after the twentieth merchant.
 */
export async function makeMerchant(
  ctx: TxContext,
  subject: Subject,
  personId: string,
  name: string,
): Promise<Membership> {
  const owned = (await membershipsOf(ctx, subject))?.filter(({ role }) => role === "owner").length ?? 0
  const isOpen = ctx.settings.signup === "open" || (owned === 0 && (await takeInvitation(ctx, subject)))
  if (!isOpen) throw new ApiError("SIGNUP_CLOSED")
  if (owned >= OWNED_PER_PERSON)
    throw new ApiError("INVALID_OPERATION", undefined, `You already own ${OWNED_PER_PERSON} merchants.`)
  const merchantId = newId("mer")
  const created_at = ctx.now()
  await ctx.db.insertInto("merchants").values({ id: merchantId, name, email: null, created_at }).execute()
  await ctx.db
    .insertInto("webhook_secrets")
    .values(newSecretRow(ctx, { merchantId, webhookId: null }))
    .execute()
  await ctx.db
    .insertInto("members")
    .values({ merchant_id: merchantId, person_id: personId, role: "owner", created_at })
    .execute()
  return { personId, merchantId, role: "owner", name, timeZone: null }
}

/**
 * The membership that a bearer token's request is for. A person who was never a member of a merchant gets a new
 * merchant. Call it inside a transaction.
 */
export async function firstMembership(ctx: TxContext, subject: Subject): Promise<Membership> {
  const personId = await lockPerson(ctx, subject)
  // A concurrent first request may already have created the merchant.
  const [made] = (await membershipsOf(ctx, subject)) ?? []
  return made ?? (await makeMerchant(ctx, subject, personId, ""))
}

/** Uses up an invitation that the operator gave to a person; false if no unused one exists. */
async function takeInvitation(ctx: TxContext, { iss, sub }: Subject): Promise<boolean> {
  const taken = await ctx.db
    .updateTable("invitations")
    .set({ used_at: ctx.now() })
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .where("used_at", "is", null)
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

/** The stored person; undefined for a subject who never signed in at the issuer and was never a member. */
export async function storedPerson(ctx: TxContext, { iss, sub }: Subject): Promise<Row<"persons"> | undefined> {
  const person = ctx.db.selectFrom("persons").selectAll().where("iss", "=", iss).where("sub", "=", sub)
  return await person.executeTakeFirst()
}
