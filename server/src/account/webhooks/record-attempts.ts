/**
 * Records the results of deliveries. Every write names the claim. A process that lost its lease changes nothing,
 * because the lease's new holder will record the result.
 */
import { sql } from "kysely"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { DisabledReason, Row } from "../../platform/db/schema.ts"
import { deliveryAttempts } from "../../platform/metrics.ts"
import type { Attempt } from "./send.ts"
import { skipWaiting } from "./skip-deliveries.ts"
import { afterAttempt } from "./webhook.ts"

/** An endpoint is paused when it has done nothing but fail for this long. */
const FAILING_MS = 5 * 24 * 3_600_000
const BARE_ADDRESS = ""

/** Where a delivery was sent: the endpoint, and its URL at that time. */
interface SentTo {
  id: string
  url: string
  failing: boolean
}

export interface Result {
  delivery: Pick<Row<"deliveries">, "id" | "merchant_id" | "claim_id" | "attempts">
  /**
   * The endpoint when the delivery was claimed; undefined for a callback. An answer from `url` says nothing about an
   * endpoint that has moved since.
   */
  webhook: SentTo | undefined
  startedAt: Date
  attempt: Attempt
}

/** Records attempts in a batch and returns how many deliveries this process still held. */
export async function recordAttempts(ctx: Context, results: readonly Result[]): Promise<number> {
  // Endpoints that were not failing need no second statement, so no transaction is needed.
  const plain = results.every(({ attempt, webhook }) => attempt.error === null && !webhook?.failing)
  const held = plain ? await writeAttempts(ctx, results) : await inTransaction(ctx, ctx => writeAll(ctx, results))
  return held.size
}

async function writeAll(ctx: TxContext, results: readonly Result[]): Promise<Set<string>> {
  const held = await writeAttempts(ctx, results)
  const ours = results.filter(({ delivery }) => held.has(delivery.id))
  const endpoints = Map.groupBy(ours, ({ webhook }) => (webhook ? `${webhook.id} ${webhook.url}` : BARE_ADDRESS))
  endpoints.delete(BARE_ADDRESS)
  // In id order. Otherwise workers whose batches share failing endpoints would deadlock.
  for (const [, results] of [...endpoints].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const [endpoint] = results.flatMap(({ webhook }) => webhook ?? [])
    if (!endpoint) continue
    if (results.some(({ attempt }) => attempt.error === null)) await succeeded(ctx, endpoint)
    else await failed(ctx, endpoint)
    if (results.some(({ attempt }) => attempt.status === 410)) await switchOff(ctx, endpoint, "gone")
  }
  return held
}

/**
 * Writes the deliveries' next states and attempts in one statement. Returns the ids of deliveries that this process
 * held.
 */
export async function writeAttempts(ctx: TxContext, results: readonly Result[]): Promise<Set<string>> {
  const now = ctx.now()
  const rows = results.map(({ delivery, attempt, startedAt }) => {
    const next = afterAttempt(delivery.attempts + 1, attempt, Math.random())
    const again = afterAttempt(1, attempt, 0)
    return {
      id: delivery.id,
      claim_id: delivery.claim_id,
      counted: delivery.attempts,
      state: next.status,
      in_ms: next.inMs ?? 0,
      // For a delivery that was resent while it was being sent, whose count has therefore restarted.
      state_anew: again.status,
      in_ms_anew: again.inMs ?? 0,
      started_at: startedAt,
      duration_ms: attempt.durationMs,
      status: attempt.status,
      error: attempt.error,
      answer: attempt.answer,
      headers: attempt.headers,
    }
  })
  const written = await sql<{ id: string; status: string }>`
    /* named: record_attempts */ with results as (select * from (select * from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as r(id text, claim_id uuid,
      counted int, state text, in_ms int, state_anew text, in_ms_anew int, started_at timestamptz, duration_ms int,
      status int, error text, answer text, headers jsonb) limit ${rows.length}) r limit ${rows.length}),
    ours as (
      update deliveries d set status = case when d.attempts = r.counted then r.state else r.state_anew end,
        run_at = ${now}::timestamptz
          + interval '1 ms' * case when d.attempts = r.counted then r.in_ms else r.in_ms_anew end,
        attempts = d.attempts + 1, by_hand = false, claim_id = null, lease_until = null, updated_at = ${now}
      from results r where d.id = r.id and d.claim_id = r.claim_id
      returning d.id, d.status, r.started_at, r.duration_ms, r.status as answered, r.error, r.answer, r.headers),
    log as (
      insert into delivery_attempts (delivery_id, started_at, duration_ms, status, error, answer, headers)
      select id, started_at, duration_ms, answered, error, answer, headers from ours)
    select id, status from ours`.execute(ctx.db)
  for (const { status } of written.rows) deliveryAttempts.inc({ result: status === "pending" ? "retry" : status })
  return new Set(written.rows.map(({ id }) => id))
}

/** SQL: whether an endpoint still has the URL of an attempt. */
const stillAt = ({ id, url }: SentTo) => sql<boolean>`id = ${id} and url = ${url}`

/** One success ends a series of failures. */
const succeeded = (ctx: TxContext, endpoint: SentTo) =>
  ctx.db
    .updateTable("webhooks")
    .set({ failing_since: null })
    .where(stillAt(endpoint))
    .where("failing_since", "is not", null)
    .execute()

async function failed(ctx: TxContext, endpoint: SentTo): Promise<void> {
  const now = ctx.now()
  const row = await ctx.db
    .updateTable("webhooks")
    .set({ failing_since: sql<Date>`coalesce(failing_since, ${now})` })
    .where(stillAt(endpoint))
    .returning(["failing_since", "active"])
    .executeTakeFirst()
  if (!row?.active || !row.failing_since || now.getTime() - row.failing_since.getTime() < FAILING_MS) return
  if (await hasSucceeded(ctx, endpoint, row.failing_since)) await succeeded(ctx, endpoint)
  else await switchOff(ctx, endpoint, "failing")
}

/**
 * Whether an endpoint has received anything since a given time. With several concurrent deliveries, a success may be
 * recorded by a process that had not seen the earlier failure. That success then did not end the series of failures.
 */
async function hasSucceeded(ctx: TxContext, { id, url }: SentTo, since: Date): Promise<boolean> {
  const found = await ctx.db
    .selectFrom("deliveries")
    .select("id")
    .where("webhook_id", "=", id)
    .where("status", "=", "delivered")
    .where("updated_at", ">=", since)
    .where(sql<boolean>`(url is null or url = ${url})`)
    .limit(1)
    .executeTakeFirst()
  return found !== undefined
}

/** Pauses an endpoint that wants no more events or can't receive any. Its pending deliveries become `skipped`. */
async function switchOff(ctx: TxContext, endpoint: SentTo, reason: DisabledReason): Promise<void> {
  const off = await ctx.db
    .updateTable("webhooks")
    .set({ active: false, disabled_reason: reason, updated_at: ctx.now() })
    .where(stillAt(endpoint))
    .where("active", "=", true)
    .executeTakeFirst()
  if (off.numUpdatedRows === 0n) return
  await skipWaiting(ctx, endpoint.id)
  ctx.log.warn({ webhookId: endpoint.id, reason }, "webhook deactivated")
}
