/** Leases a listener's due deliveries to a puller, like a worker's claim. */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { type Context, inTransaction, type TxContext, wallTime } from "../../platform/context.ts"
import { secretsOf } from "../webhooks/manage-secrets.ts"
import { deliveryHeaders } from "../webhooks/send.ts"
import { lockListener } from "./manage-listeners.ts"
import type { Pulled } from "./schema.ts"

/**
 * How many of a listener's deliveries may be pulled but have no result yet, over all its pullers. A puller that was
 * killed gets these deliveries again, although it may have handled each of them. With a thousand deliveries, that is
 * one delivery in a hundred.
 */
const MAX_OPEN = 10
/** A lease outlives the longest exchange and the report of its result by this margin. */
const LEASE_MARGIN_MS = 30_000
/** Leases are counted only among this many deliveries: those that are due first. */
const COUNTED = 1_000
/** How often a pull is recorded in the listener's row, in seconds. */
const NOTED_S = 30

interface Claimed {
  id: string
  event_id: string
  attempts: number
  type: string
  body: string
  callback_url: string | null
}

/**
 * Claims a listener's due deliveries, oldest first, each as it must be sent now. Concurrent pullers get different ones.
 * A payment's event waits until the payment's earlier events were tried once. Throws `NOT_FOUND`.
 */
export async function claimPulled(ctx: Context, merchantId: string, id: string): Promise<Pulled[]> {
  if (!(await isAnythingDue(ctx, merchantId, id))) return []
  return await inTransaction(ctx, async ctx => {
    // Locked, so that concurrent pullers see each other's leases.
    await lockListener(ctx, merchantId, id)
    await notePull(ctx, id)
    const claimed = await claim(ctx, id)
    if (claimed.length === 0) return []
    const secrets = await secretsOf(ctx, { merchantId, webhookId: id })
    const t = Math.floor(wallTime(ctx).getTime() / 1_000)
    return claimed.map(row => pulledOf(row, secrets, t))
  })
}

/** Whether a transaction has anything to do: deliveries are due, or the pull must be recorded again. */
async function isAnythingDue(ctx: Context, merchantId: string, id: string): Promise<boolean> {
  const { rows } = await sql<{
    due: boolean
  }>`select coalesce((select pulled_at > clock_timestamp() - make_interval(secs => ${NOTED_S})
      from webhooks where id = ${id} and merchant_id = ${merchantId} and deleted_at is null), false) is false
    or exists (select from deliveries where lane = ${id} and status = 'pending' and run_at <= ${ctx.now()}
      and (lease_until is null or lease_until < clock_timestamp())) as due`.execute(ctx.db)
  return rows[0]?.due ?? true
}

async function notePull(ctx: TxContext, id: string): Promise<void> {
  await sql`update webhooks set pulled_at = clock_timestamp() where id = ${id}
    and pulled_at < clock_timestamp() - make_interval(secs => ${NOTED_S})`.execute(ctx.db)
}

async function claim(ctx: TxContext, id: string): Promise<Claimed[]> {
  const leaseMs = ctx.settings.webhooks.timeoutMs + LEASE_MARGIN_MS
  const { rows } = await sql<Claimed>`
    /* named: claim_pulled */ with open as (
      select count(*)::int as n from (select lease_until from deliveries where lane = ${id} and status = 'pending'
        order by run_at limit ${COUNTED}) d where lease_until >= clock_timestamp()),
    picked as (
      select t.id from deliveries t
      where t.lane = ${id} and t.status = 'pending' and t.run_at <= ${ctx.now()}
        and (t.lease_until is null or t.lease_until < clock_timestamp())
        and t.seq <= coalesce((select e.seq from deliveries e where e.lane = t.lane and e.order_key = t.order_key
          and e.status = 'pending' and e.attempts = 0 order by e.seq limit 1), t.seq)
      order by t.run_at limit greatest(${MAX_OPEN}::int - (select n from open), 0) for no key update of t skip locked),
    claimed as (
      update deliveries d set claim_id = ${randomUUID()},
        lease_until = clock_timestamp() + make_interval(secs => ${leaseMs / 1_000})
      from picked where d.id = picked.id returning d.id, d.seq, d.event_id, d.attempts)
    select c.id, c.event_id, c.attempts, e.type, e.body,
      (select o.url from deliveries o where o.event_id = c.event_id and o.webhook_id is null limit 1) as callback_url
    from claimed c join events e on e.id = c.event_id order by c.seq`.execute(ctx.db)
  return rows
}

function pulledOf(row: Claimed, secrets: readonly string[], t: number): Pulled {
  const { id, event_id: eventId, attempts, type, body, callback_url: callbackUrl } = row
  return {
    deliveryId: id,
    attempt: attempts + 1,
    event: type,
    callbackUrl,
    headers: {
      ...deliveryHeaders({ secrets, eventId, idempotencyKey: id, body }, t),
      ...(callbackUrl === null ? {} : { "service-copy-of": new URL(callbackUrl).href }),
    },
    body: Buffer.from(body).toString("base64"),
  }
}
