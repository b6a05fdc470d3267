/**
 * Sends mails by SMTP. A mail is a job: it is claimed with a lease, sent and recorded. If a process is killed after the
 * mail server accepted a mail and before that is recorded, the mail is sent again. The second copy has the same
 * Message-ID, so mail programs show only one.
 */
import { randomUUID } from "node:crypto"
import { type RawBuilder, sql } from "kysely"
import nodemailer from "nodemailer"
import type { MailSettings } from "../../platform/config/settings.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { mailsSent } from "../../platform/metrics.ts"
import { kindOf, placeOf } from "./notices.ts"
import { textOf } from "./write-mails.ts"

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
/** How many mails of a kind an address gets in an hour; further ones wait for the digest. */
const MOST_IN_HOUR = 20
/** How many invitations from one merchant an address gets in a day, because inviting someone needs no consent. */
const MOST_INVITATIONS_IN_DAY = 3
const BATCH = 10
/** A lease outlasts the longest exchange, because each step of an exchange is bounded. */
const LEASE_MS = 120_000
const STEP_MS = 20_000
/** The delay after each attempt except the last. */
const RETRY_MS = [60_000, 300_000, 1_800_000, 7_200_000, 28_800_000]
const LISTED_AT_MOST = 50
const ERROR_CHARACTERS = 300

type Mail = Pick<Row<"mails">, "id" | "address" | "subject" | "body" | "sealed" | "attempts" | "notice" | "claim_id">

/** Creates the digests that are due and sends the mails that are due. Returns how many mails it tried to send. */
export async function sendMails(ctx: Context): Promise<number> {
  const { mail } = ctx.settings
  if (!mail) return 0
  await inTransaction(ctx, makeDigests)
  let tried = 0
  const transport = nodemailer.createTransport({ url: mail.url, ...bounds })
  try {
    for (;;) {
      const claimed = await inTransaction(ctx, claim)
      if (claimed.length === 0 || ctx.signal.aborted) return tried
      for (const each of claimed) await sendOne(ctx, mail, transport, each)
      tried += claimed.length
    }
  } finally {
    transport.close()
  }
}

const bounds = {
  connectionTimeout: STEP_MS,
  greetingTimeout: STEP_MS,
  socketTimeout: STEP_MS,
  // No text in a mail can make nodemailer read a file or a URL.
  disableFileAccess: true,
  disableUrlAccess: true,
}

/**
 * Claims due mails under a lease. Mails beyond an address's hourly limit are gathered for a digest, and invitations
 * beyond their daily limit are dropped.
 */
async function claim(ctx: TxContext): Promise<Mail[]> {
  // The lock is held for a few milliseconds, so that concurrent processes count each other's mails.
  await sql`select pg_advisory_xact_lock(hashtextextended('mails', 0))`.execute(ctx.db)
  const now = ctx.now()
  const { rows } = await sql<Row<"mails">>`select * from mails where status = 'pending' and run_at <= ${now}
    and (lease_until is null or lease_until < clock_timestamp()) order by run_at, id limit ${BATCH} for no key update`.execute(
    ctx.db,
  )
  const taken: Mail[] = []
  const claim_id = randomUUID()
  for (const row of rows) {
    const instead = row.taken_at === null && row.notice !== "digest" ? await insteadOf(ctx, row) : undefined
    await sql`update mails set updated_at = ${now}, ${
      instead ??
      sql`claim_id = ${claim_id}, lease_until = clock_timestamp() + make_interval(secs => ${LEASE_MS / 1_000}),
            taken_at = coalesce(taken_at, ${now})`
    } where id = ${row.id}`.execute(ctx.db)
    if (instead === undefined) taken.push({ ...row, claim_id })
  }
  // Perhaps no mail of this batch was taken, although more mails are due.
  return taken.length === 0 && rows.length > 0 ? await claim(ctx) : taken
}

/** Returns the change to a mail that is beyond a limit; undefined if it may be sent. */
async function insteadOf(ctx: TxContext, row: Row<"mails">): Promise<RawBuilder<unknown> | undefined> {
  const now = ctx.now().getTime()
  const rows = await ctx.db
    .selectFrom("mails")
    .select(["notice", "merchant_id", "taken_at"])
    .where("address", "=", row.address)
    .where("taken_at", ">", new Date(now - (row.notice === "invitation" ? DAY_MS : HOUR_MS)))
    .where("notice", "<>", "digest")
    .execute()
  const same = rows.filter(({ notice }) => kindOf(notice) === kindOf(row.notice))
  const ofMerchant = same.filter(({ merchant_id: id }) => id === row.merchant_id)
  // Not gathered, because a digest does not contain the invitation's link. Whoever invited the person got the token in
  // the answer and can pass it on.
  if (row.notice === "invitation" && ofMerchant.length >= MOST_INVITATIONS_IN_DAY)
    return sql`status = 'failed', body = null, sealed = null, error = 'too many invitations of a merchant in a day'`
  const inHour = same.filter(({ taken_at: at }) => (at?.getTime() ?? 0) > now - HOUR_MS)
  return inHour.length >= MOST_IN_HOUR ? sql`status = 'gathered'` : undefined
}

/** Creates one digest for each address whose first gathered mail has waited for an hour. */
async function makeDigests(ctx: TxContext): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtextextended('mails', 0))`.execute(ctx.db)
  const now = ctx.now()
  const { rows: due } = await sql<{ address: string }>`select address from mails where status = 'gathered'
    group by address having min(created_at) <= ${new Date(now.getTime() - HOUR_MS)}`.execute(ctx.db)
  for (const { address } of due) {
    const rows = await ctx.db
      .updateTable("mails")
      .set({ status: "digested", body: null, sealed: null, updated_at: now })
      .where("address", "=", address)
      .where("status", "=", "gathered")
      .returning(["id", "notice", "subject", "created_at"])
      .execute()
    const listed = rows
      .toSorted((a, b) => placeOf(a.notice) - placeOf(b.notice) || a.created_at.getTime() - b.created_at.getTime())
      .slice(0, LISTED_AT_MOST)
    const more = rows.length - listed.length
    const id = newId("mail")
    await ctx.db
      .insertInto("mails")
      .values({
        id,
        merchant_id: null,
        notice: "digest",
        dedupe_key: id,
        address,
        subject: "Notices of the last hour",
        body: [
          `More than ${MOST_IN_HOUR} notices of one kind came within an hour. The rest:`,
          "",
          ...listed.map(row => `${row.created_at.toISOString().slice(0, 16).replace("T", " ")} UTC  ${row.subject}`),
          ...(more > 0 ? [`and ${more} more`] : []),
          "",
          `${ctx.settings.consoleUrl}/console`,
        ].join("\n"),
        run_at: dueNow(now),
        created_at: now,
        updated_at: now,
      })
      .execute()
  }
}

type Transport = ReturnType<typeof nodemailer.createTransport>

async function sendOne(ctx: Context, { from }: MailSettings, transport: Transport, mail: Mail): Promise<void> {
  const { id, address, subject } = mail
  const failure = await Promise.resolve()
    .then(() => textOf(ctx, mail))
    .then(text =>
      transport.sendMail({
        messageId: `<${id}@${new URL(ctx.settings.consoleUrl).hostname}>`,
        from: { name: "Sluice", address: from },
        // Never passed as text to parse: an address with a comma would become two.
        to: { name: "", address },
        envelope: { from, to: [address] },
        subject,
        text,
        headers: { "Auto-Submitted": "auto-generated" },
      }),
    )
    .then(
      () => undefined,
      (error: Error & { responseCode?: number; code?: string }) => error,
    )
  const change = failure === undefined ? sent : failed(ctx, mail, failure)
  await ctx.db
    .updateTable("mails")
    .set({ ...change, attempts: mail.attempts + 1, claim_id: null, lease_until: null, updated_at: ctx.now() })
    .where("id", "=", id)
    .where("claim_id", "=", mail.claim_id)
    .execute()
  mailsSent.inc({ result: failure === undefined ? "sent" : change.status === "failed" ? "failed" : "retry" })
}

const sent = { status: "sent" as const, body: null, sealed: null, error: null }

/**
 * Returns the change to a mail that was not accepted. A refused recipient is final. A refused login is retried, because
 * the operator can fix it.
 */
function failed(
  ctx: Context,
  { id, attempts, notice }: Mail,
  failure: Error & { responseCode?: number; code?: string },
): { status: "failed" | "pending"; error: string; body?: null; sealed?: null; run_at?: Date } {
  const error = failure.message.slice(0, ERROR_CHARACTERS).toWellFormed().replaceAll("\0", "")
  const isRefused = failure.code === "EENVELOPE" && (failure.responseCode ?? 0) >= 500
  const delayMs = RETRY_MS[attempts]
  ctx.log.warn(
    { mail: id, attempt: attempts + 1, code: failure.code, status: failure.responseCode },
    "a mail was not accepted",
  )
  // If an invitation was written before migration 0018, its body contains the token.
  const kept = notice === "invitation" ? { body: null } : {}
  if (isRefused || delayMs === undefined) return { status: "failed", error, sealed: null, ...kept }
  return { status: "pending", error, run_at: new Date(ctx.now().getTime() + delayMs) }
}
