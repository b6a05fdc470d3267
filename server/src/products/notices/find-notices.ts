/**
 * Finds what people must be told by mail, and mails it once. The search runs once a minute. It is outside the
 * transactions that cause mails, so that a settlement does not wait for mail.
 */
import { sql } from "kysely"
import { isMailing, mailMembers, mailTo } from "../../account/notifications/write-mails.ts"
import { originOf } from "../../account/webhooks/webhook.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import { writeStatements } from "./write-statements.ts"

const MINUTE_MS = 60_000
/**
 * The maximum age of an event that is still mailed, because a process may have been down. Each event is mailed once.
 */
const BACK_MS = 24 * 60 * MINUTE_MS
/**
 * How long something may last before it is mailed. Until then, a held payout may be sent without anyone's help, and an
 * endpoint may recover.
 */
const PATIENCE_MS = 60 * MINUTE_MS
const AT_MOST = 200

/** Mails what is new. `alarms` returns the service's alarms, which are mailed to its operator. */
export async function findNotices(ctx: Context, alarms: () => Promise<string[]>): Promise<void> {
  if (!isMailing(ctx)) return
  await mailWaitingPayments(ctx)
  await mailHeldPayouts(ctx)
  await mailFailingEndpoints(ctx)
  await writeStatements(ctx)
  await mailAlarms(ctx, await alarms())
}

async function mailWaitingPayments(ctx: Context): Promise<void> {
  const since = new Date(ctx.now().getTime() - BACK_MS)
  const { rows } = await sql<{ id: string; merchant_id: string; body: string }>`
    select e.id, e.merchant_id, e.body from merchants m
      cross join lateral (select id, merchant_id, body, created_at from events where merchant_id = m.id and type = 'payment.exception'
        and created_at > ${since} and erased_at is null and not starts_with(dedupe_key, 'test ') order by created_at desc limit ${AT_MOST}) e
    where not exists (select from mails where dedupe_key = 'payment ' || e.id) order by e.created_at limit ${AT_MOST}`.execute(
    ctx.db,
  )
  for (const { id, merchant_id: merchantId, body } of rows) {
    const { data } = JSON.parse(body) as {
      data: { paymentId: string; amount: string; currency: string; exception: string; chain: string }
    }
    await inTransaction(ctx, ctx =>
      mailMembers(ctx, merchantId, "payment_waiting", {
        key: `payment ${id}`,
        subject: "A payment needs a decision",
        // The mail leaves out the name of a stranger's token. The console shows that name with what is known about
        // the token.
        lines: [
          `A payment on ${data.chain} is waiting for your decision: ${data.exception}.`,
          "Accept it or return it in the console.",
        ],
        path: `/payments/${data.paymentId}`,
      }),
    )
  }
}

async function mailHeldPayouts(ctx: Context): Promise<void> {
  const before = new Date(ctx.now().getTime() - PATIENCE_MS)
  const { rows } = await sql<{ id: string; merchant_id: string; held_reason: string | null }>`
    select id, merchant_id, held_reason from payouts p where state = 'held' and updated_at < ${before} and merchant_id is not null
      and kind in ('share', 'sweep', 'return', 'capture') and not exists (select from mails where dedupe_key = 'payout ' || p.id || ' ' || coalesce(p.held_reason, ''))
    order by created_at limit ${AT_MOST}`.execute(ctx.db)
  for (const { id, merchant_id: merchantId, held_reason: reason } of rows)
    await inTransaction(ctx, ctx =>
      mailMembers(ctx, merchantId, "payout_held", {
        key: `payout ${id} ${reason ?? ""}`,
        subject: "A payout is held",
        lines: [`A payout has been held for an hour: ${reason ?? "its reason is in the console"}.`],
        path: `/payouts/${payoutIdOf(id)}`,
      }),
    )
}

async function mailFailingEndpoints(ctx: Context): Promise<void> {
  const now = ctx.now().getTime()
  const { rows } = await sql<{
    id: string
    merchant_id: string
    url: string
    since: Date
    disabled_reason: string | null
    key: string
  }>`
    select id, merchant_id, url, since, disabled_reason, k.key from webhooks
      cross join lateral (select coalesce(failing_since, updated_at) as since) s
      cross join lateral (select 'endpoint ' || id || ' ' || to_char(since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || ' '
        || coalesce(disabled_reason, '') as key) k
    where deleted_at is null and ((active and failing_since < ${new Date(now - PATIENCE_MS)})
      or (disabled_reason is not null and updated_at > ${new Date(now - BACK_MS)}))
      and not exists (select from mails where dedupe_key = k.key) order by id limit ${AT_MOST}`.execute(ctx.db)
  for (const { id, merchant_id: merchantId, url, since, disabled_reason: reason, key } of rows)
    await inTransaction(ctx, ctx =>
      mailMembers(ctx, merchantId, "endpoint_failing", {
        key,
        subject: "An endpoint receives no events",
        // Only the origin, because a path or a query may be a secret.
        lines: [
          `${originOf(url)} has accepted no event since ${since.toISOString().slice(0, 16)} UTC.`,
          ...(reason === null ? [] : ["It was switched off. Switch it on and recover what it missed in the console."]),
        ],
        path: `/webhooks/${id}`,
      }),
    )
}

/** Mails alarms to the operator; one that lasts is mailed once a day. */
async function mailAlarms(ctx: Context, alarms: readonly string[]): Promise<void> {
  const { alarmsTo } = ctx.settings.mail ?? {}
  if (alarmsTo === undefined || alarms.length === 0) return
  const day = ctx.now().toISOString().slice(0, 10)
  for (const alarm of alarms)
    await inTransaction(ctx, ctx =>
      mailTo(
        ctx,
        { merchantId: null, notice: "alarm", addresses: [alarmsTo] },
        {
          // Numbers are replaced, because they change while an alarm lasts.
          key: `alarm ${day} ${alarm.replaceAll(/\d+/g, "n").slice(0, 200)}`,
          subject: "An alarm of the payment service",
          lines: [alarm.slice(0, 2_000), "", "docs/operators/alarms.md says what it means and what to do."],
          path: "",
        },
      ),
    )
}
