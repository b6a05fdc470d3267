/** Writes mails, in the transaction of the change that they report. Writes nothing if no mail server is set. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { seal, unseal } from "../../platform/secrets.ts"
import { isMailable, type NoticeName, noticeTable, type PersonalNotice, plainWords } from "./notices.ts"

interface Mail {
  /** Identifies what happened, so that it is mailed only once. */
  key: string
  /**
   * The subject is the same for each notice of a kind: it contains no name of a payer or product, and nothing that
   * anybody else wrote.
   */
  subject: string
  /** Lines of the body, without the merchant's name and the link. */
  lines: readonly string[]
  /** The link's path below `/console`. Following the link only opens a page. */
  path: string
  /**
   * Whether the path contains a token. Such a path is stored sealed, and is appended to the text when the mail is sent.
   */
  isSecret?: boolean
}

/** Whether mails are sent at all. */
export const isMailing = ({ settings }: Pick<TxContext, "settings">): boolean => settings.mail !== undefined

/**
 * Mails a notice to the members who get it at this time. Call it inside the transaction of the change that it reports,
 * before the change is written. The order matters most if the members themselves change.
 */
export async function mailMembers(ctx: TxContext, merchantId: string, notice: NoticeName, mail: Mail): Promise<void> {
  if (!isMailing(ctx)) return
  const rows = await ctx.db
    .selectFrom("members")
    .innerJoin("persons", "persons.id", "members.person_id")
    .leftJoin("notification_choices as c", join =>
      join
        .onRef("c.merchant_id", "=", "members.merchant_id")
        .onRef("c.person_id", "=", "members.person_id")
        .on("c.notice", "=", notice),
    )
    .select(["persons.email", "members.role", "c.by_mail"])
    .where("members.merchant_id", "=", merchantId)
    .where("persons.email", "is not", null)
    .execute()
  const table = noticeTable[notice]
  const isChosen = (role: (typeof rows)[number]["role"], chosen: boolean | null): boolean => {
    const isUsual = (table.roles as readonly string[]).includes(role)
    return "isSecurity" in table ? isUsual : (chosen ?? isUsual)
  }
  const addresses = rows.filter(row => isChosen(row.role, row.by_mail)).map(({ email }) => `${email}`)
  if (addresses.some(isMailable)) return await mailTo(ctx, { merchantId, notice, addresses }, mail)
  // Recorded, so that a search for things that were not mailed does not find this notice again.
  const now = ctx.now()
  const nobody = { address: "", subject: mail.subject, status: "failed" as const, error: "nobody gets it" }
  await ctx.db
    .insertInto("mails")
    .values({
      ...nobody,
      id: newId("mail"),
      merchant_id: merchantId,
      notice,
      dedupe_key: mail.key,
      run_at: now,
      created_at: now,
      updated_at: now,
    })
    .onConflict(conflict => conflict.columns(["address", "dedupe_key"]).doNothing())
    .execute()
}

/** Mails to addresses, once to each. Invalid addresses are left out. */
export async function mailTo(
  ctx: TxContext,
  to: { merchantId: string | null; notice: NoticeName | PersonalNotice | "alarm"; addresses: readonly string[] },
  { key, subject, lines, path, isSecret = false }: Mail,
): Promise<void> {
  const addresses = [...new Set(to.addresses)].filter(isMailable)
  if (!isMailing(ctx) || addresses.length === 0) return
  const now = ctx.now()
  const merchant = to.merchantId === null ? "" : await nameOf(ctx, to.merchantId)
  const link = isSecret ? "" : linkTo(ctx, path)
  const body = [...(merchant === "" ? [] : [`Merchant: ${merchant}`, ""]), ...lines, "", link].join("\n")
  const rows = addresses.map(address => ({
    ...ownOf(ctx, isSecret ? path : undefined),
    merchant_id: to.merchantId,
    notice: to.notice,
    dedupe_key: key,
    address,
    subject,
    body,
    run_at: dueNow(now),
    created_at: now,
    updated_at: now,
  }))
  await ctx.db
    .insertInto("mails")
    .values(rows)
    .onConflict(conflict => conflict.columns(["address", "dedupe_key"]).doNothing())
    .execute()
}

/** The id of a new mail, and the path of its secret link, sealed for this id alone. */
function ownOf({ settings }: TxContext, secretPath: string | undefined): { id: string; sealed: string | null } {
  const id = newId("mail")
  return { id, sealed: secretPath === undefined ? null : seal(settings.secretKeys, "mail-link", id, secretPath) }
}

/** The whole text of a mail, as it is sent. Throws an Error if the link was sealed with another SECRET_KEY. */
export const textOf = (
  ctx: Pick<TxContext, "settings">,
  { id, body, sealed }: Pick<Row<"mails">, "id" | "body" | "sealed">,
) => `${body ?? ""}${sealed === null ? "" : linkTo(ctx, unseal(ctx.settings.secretKeys, "mail-link", id, sealed))}`

/** The URL of a link, which opens a page of the console. */
const linkTo = ({ settings }: Pick<TxContext, "settings">, path: string): string =>
  `${settings.consoleUrl}/console${path}`

async function nameOf(ctx: TxContext, merchantId: string): Promise<string> {
  const row = await ctx.db.selectFrom("merchants").select("name").where("id", "=", merchantId).executeTakeFirst()
  return plainWords(row?.name ?? "") || merchantId
}

/** Deletes mails that are older than 30 days and not pending. */
export async function forgetOldMails(ctx: TxContext): Promise<void> {
  const before = new Date(ctx.now().getTime() - 30 * 86_400_000)
  await sql`delete from mails where created_at < ${before} and status <> 'pending'`.execute(ctx.db)
}
