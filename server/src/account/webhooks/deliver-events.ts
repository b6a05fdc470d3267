/**
 * Delivers events: claims due deliveries, sends them and records the results. A crash loses nothing. If a claimed
 * delivery was not recorded, it is due again when its lease expires, with the same idempotency key.
 */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { isHeld, releaseLease } from "../../platform/jobs/claim.ts"
import { runLoop } from "../../platform/jobs/run.ts"
import { deliveriesInFlight } from "../../platform/metrics.ts"
import { type ClaimedDelivery, claimDeliveries } from "./claim-deliveries.ts"
import { openSlots } from "./delivery-slots.ts"
import { accountSecret, opened } from "./manage-secrets.ts"
import { openRecorder } from "./open-recorder.ts"
import type { Result } from "./record-attempts.ts"
import type { Attempt, Sender } from "./send.ts"
import { traceDelivery } from "./trace-delivery.ts"

/** A lease outlives the longest exchange and its recording by this margin. */
const LEASE_MARGIN_MS = 30_000
/** Lanes checked in one claim; the next claim continues after them. */
const LANES = 200
/** The longest sleep: a lost wake-up delays deliveries by at most this long. */
const MAX_SLEEP_MS = 5_000
/**
 * An endpoint whose answer took this long gets one request at a time until it is fast again. Otherwise, a slow endpoint
 * would fill all slots.
 */
const SLOW_MS = 5_000
/** An endpoint gets prefetched deliveries, up to its concurrency limit, if its last success took at most this long. */
const QUICK_MS = 250
/**
 * A prefetched row that has not started within this time is given back, because its endpoint may have been paused or
 * its secret rolled.
 */
const AHEAD_MS = 1_000
/** Rows are prefetched only while this share of the slots is free. Below that, other lanes need the slots. */
const AHEAD_FREE = 0.25
/**
 * The next claim waits one millisecond for each row found, and at most this long. With thousands of new rows a second,
 * each statement then claims and records several times as many. A single new delivery delays the next claim by only a
 * millisecond.
 */
const MAX_GAP_MS = 10
/** How many lanes that are not quick are remembered. With 2,000 lanes, a claim took 13 ms instead of 3 (measured). */
const MAX_REMEMBERED = 500
/** How long a stopping process waits for answers. Other processes retry the deliveries that are still open. */
const STOP_GRACE_MS = 10_000

export interface Deliverer {
  /** Claims due deliveries while there is room, prefetches some, and starts sending. Returns how many were claimed. */
  round(): Promise<number>
  /** The shortest time between the starts of two rounds, in milliseconds. */
  gapMs(): number
  /**
   * Resolves when nothing is being sent or recorded. After the signal, deliveries that have not started are given back.
   */
  idle(): Promise<void>
}

/** A claimed row that has not started. */
interface WaitingDelivery {
  row: ClaimedDelivery
  claimedAt: number
}

/** The rows of one lane that this process has claimed. */
interface EndpointLane {
  sending: number
  /** Oldest first. */
  waiting: WaitingDelivery[]
  /** Whether the last claim used all the available room, so more rows may be due. */
  hasMore: boolean
}

/** Opens one process's deliverer; `cut` aborts the deliveries being sent. */
// long: claiming, starting and finishing share the lanes and the slots, and every step frees room for another
export function openDeliverer(ctx: Context, sender: Sender, cut?: AbortSignal): Deliverer {
  const { concurrency, concurrencyPerEndpoint } = ctx.settings.webhooks
  /** More rows of a lane are claimed when this many prefetched ones are left. */
  const refillAt = Math.ceil(concurrencyPerEndpoint / 2)
  const lanes = new Map<string, EndpointLane>()
  const pace = openPace()
  const work = new Set<Promise<void>>()
  const places = openSlots(concurrency)
  let turn = ""
  let gapMs = 0
  const recorder = openRecorder(ctx, cut, recorded => {
    for (const { delivery } of recorded) places.give(delivery.merchant_id)
    // A slot is free, so a row that waited for an earlier one's first attempt may start.
    ctx.wakes.wakeHere("deliveries")
  })

  async function round(): Promise<number> {
    gapMs = 0
    for (const name of lanes.keys()) advance(name)
    const free = places.free()
    if (free <= 0) return 0
    const ahead = free > concurrency * AHEAD_FREE ? concurrencyPerEndpoint : 0
    const perLane = concurrencyPerEndpoint + ahead
    const taken = pace.reserved(ahead, concurrencyPerEndpoint)
    const inFlight = new Map([...lanes].map(([name, { sending, waiting }]) => [name, sending + waiting.length]))
    for (const [name, n] of inFlight) taken.set(name, (taken.get(name) ?? 0) + n)
    const shares = places.shares()
    const claimed = await claimFrom(ctx, turn, { limit: free, perLane, taken, inFlight, ...shares })
    const { rows } = claimed
    turn = claimed.nextLane
    if (rows.length === 0) return 0
    for (const { merchant_id } of rows) places.take(merchant_id)
    const claimedAt = performance.now()
    let isAll = turn === "" && places.free() > 0
    for (const [merchantId, claims] of Map.groupBy(rows, ({ merchant_id }) => merchant_id))
      if (claims.length >= (shares.rooms.get(merchantId) ?? shares.room)) isAll = false
    for (const [name, ofLane] of Map.groupBy(rows, ({ lane }) => lane)) {
      const held = lanes.get(name) ?? { sending: 0, waiting: [], hasMore: false }
      for (const row of ofLane) held.waiting.push({ row, claimedAt })
      held.hasMore = ofLane.length >= perLane - (taken.get(name) ?? 0)
      if (held.hasMore) isAll = false
      lanes.set(name, held)
      advance(name)
    }
    // If more deliveries are pending, they are claimed as soon as there is room.
    if (isAll) gapMs = Math.min(MAX_GAP_MS, rows.length)
    return rows.length
  }

  /** Starts as many of a lane's rows as there is room for, and gives back rows that waited too long. */
  function advance(name: string): void {
    const held = lanes.get(name)
    if (!held) return
    const room = pace.isSlow(name) ? 1 : concurrencyPerEndpoint
    for (let next = held.waiting[0]; next; next = held.waiting[0]) {
      const old = ctx.signal.aborted || performance.now() - next.claimedAt > AHEAD_MS
      if (!old && held.sending >= room) break
      held.waiting.shift()
      if (old) pace.gaveBack(name)
      track(next.row, old ? giveBack(next.row) : deliver(next, held))
    }
    if (held.sending === 0 && held.waiting.length === 0) lanes.delete(name)
  }

  const giveBack = (row: ClaimedDelivery) =>
    releaseLease(ctx.db, "deliveries", row).finally(() => places.give(row.merchant_id))

  function track({ id }: ClaimedDelivery, doing: Promise<void>): void {
    const mine = doing
      .catch(error => ctx.log.error({ err: error, deliveryId: id }, "a delivery failed and will be retried"))
      .finally(() => work.delete(mine))
    work.add(mine)
  }

  async function deliver(next: WaitingDelivery, lane: EndpointLane): Promise<void> {
    const { row } = next
    let result: Result | undefined
    lane.sending++
    deliveriesInFlight.inc()
    try {
      result = await exchange(ctx, sender, row, cut)
      if (result) pace.answered(row.lane, result.attempt)
    } finally {
      // A delivery keeps its slot until it is recorded. If the database stalls, sending must stop.
      if (!result) places.give(row.merchant_id)
      lane.sending--
      deliveriesInFlight.dec()
      advance(row.lane)
      // The next rows are claimed while the prefetched ones are being sent, not after they are recorded.
      if (lane.hasMore && lane.waiting.length <= refillAt) {
        lane.hasMore = false
        ctx.wakes.wakeHere("deliveries")
      }
    }
    const writing = result && recorder.add(result)
    if (writing) track(row, writing)
  }

  async function idle(): Promise<void> {
    for (const name of lanes.keys()) advance(name)
    while (work.size > 0) await Promise.all(work)
  }

  return { round, gapMs: () => gapMs, idle }
}

/** Remembers the lanes that were slow, or not quick, at their last delivery. */
function openPace() {
  const slow = new Set<string>()
  const notQuick = new Set<string>()
  /** Every claim sends all of these lanes, so the oldest are dropped. The newest are at the end. */
  const addTo = (lanes: Set<string>, lane: string) => {
    lanes.delete(lane)
    lanes.add(lane)
    const [oldest = ""] = lanes.size > MAX_REMEMBERED ? lanes : []
    lanes.delete(oldest)
  }
  return {
    isSlow: (lane: string) => slow.has(lane),
    /** This process held the lane's rows for too long. */
    gaveBack: (lane: string) => addTo(notQuick, lane),
    answered: (lane: string, { durationMs, error }: Attempt) => {
      if (durationMs >= SLOW_MS) addTo(slow, lane)
      else slow.delete(lane)
      if (error === null && durationMs <= QUICK_MS) notQuick.delete(lane)
      else addTo(notQuick, lane)
    },
    /**
     * How many slots a claim leaves empty per lane: the prefetch if the lane is not quick, all but one if it is slow.
     */
    reserved: (ahead: number, perLane: number) =>
      new Map([...notQuick].map(lane => [lane, ahead + (slow.has(lane) ? perLane - 1 : 0)])),
  }
}

type Room = Pick<Parameters<typeof claimDeliveries>[1], "limit" | "perLane" | "taken" | "inFlight" | "room" | "rooms">

/** Claims due deliveries from the lanes after `lane`, until it finds some or has checked all lanes. */
async function claimFrom(ctx: Context, lane: string, room: Room): ReturnType<typeof claimDeliveries> {
  const leaseMs = AHEAD_MS + ctx.settings.webhooks.timeoutMs + LEASE_MARGIN_MS
  for (let afterLane = lane; ; ) {
    const claimed = await claimDeliveries(ctx.db, { ...room, now: ctx.now(), leaseMs, afterLane, lanes: LANES })
    if (claimed.rows.length > 0 || claimed.nextLane === "" || ctx.signal.aborted) return claimed
    afterLane = claimed.nextLane
  }
}

/** Sends one delivery. Returns undefined if the delivery was skipped, or if `cut` ended it without an answer. */
async function exchange(
  ctx: Context,
  sender: Sender,
  row: ClaimedDelivery,
  cut: AbortSignal | undefined,
): Promise<Result | undefined> {
  const { body } = row
  const to = await destinationOf(ctx, row)
  const isPaused = row.url === null && !row.by_hand && row.target.endpoint?.active === false
  if (!to || isPaused) {
    await skip(ctx, row)
    return undefined
  }
  const startedAt = ctx.now()
  const message = { url: to.url, secrets: to.secrets, eventId: row.event_id, idempotencyKey: row.id, body }
  const attempt = await traceDelivery(ctx, row, to.url, traceparent =>
    sender.send({ ...message, traceparent }, { timeoutMs: ctx.settings.webhooks.timeoutMs, signal: cut }),
  )
  if (cut?.aborted && attempt.status === null) {
    // The delivery is due immediately for the next worker. If the receiver already got the delivery, the idempotency
    // key shows that.
    await releaseLease(ctx.db, "deliveries", row)
    return undefined
  }
  return { delivery: row, webhook: to.webhook, startedAt, attempt }
}

interface Destination {
  url: string
  secrets: string[]
  webhook: Result["webhook"]
}

/**
 * A delivery's destination: its endpoint, or the URL that it is bound to, with the signing secrets. A deleted endpoint
 * has no URL, but a delivery that is bound to a URL is still sent there as long as the endpoint has signing secrets.
 */
async function destinationOf(ctx: Context, row: ClaimedDelivery): Promise<Destination | undefined> {
  const { merchant_id: merchantId, webhook_id: webhookId, url } = row
  const { endpoint, sealed } = row.target
  const secrets = sealed?.map(each => opened(ctx, { merchantId, webhookId }, each))
  const webhook =
    webhookId !== null && endpoint ? { id: webhookId, url: endpoint.url, failing: endpoint.failing } : undefined
  // After a lost SECRET_KEY an endpoint has no secret until a member rolls it, and nothing is sent unsigned.
  if (url === null) return endpoint && secrets ? { url: endpoint.url, secrets, webhook } : undefined
  if (webhookId === null) return { url, secrets: secrets ?? [await accountSecret(ctx, merchantId)], webhook }
  // An answer from an endpoint's old URL says nothing about the endpoint.
  return secrets && { url, secrets, webhook: endpoint?.url === url ? webhook : undefined }
}

/** Marks a delivery as skipped because its endpoint was paused or deleted after the event was emitted, or lost its secret. */
async function skip(ctx: Context, delivery: ClaimedDelivery): Promise<void> {
  await ctx.db
    .updateTable("deliveries")
    .set({ status: "skipped", claim_id: null, lease_until: null, updated_at: ctx.now() })
    .where(isHeld("deliveries", delivery))
    .execute()
}

/** Delivers until `ctx.signal` aborts, then waits at most ten seconds for deliveries in progress. */
export async function runDeliveries(ctx: Context, sender: Sender): Promise<void> {
  const cut = new AbortController()
  const deliverer = openDeliverer(ctx, sender, cut.signal)
  const round = async () => {
    await deliverer.round()
    return MAX_SLEEP_MS
  }
  await runLoop(ctx, { name: "deliveries", wokenBy: "deliveries", gapMs: deliverer.gapMs, round })
  const grace = setTimeout(() => cut.abort(), STOP_GRACE_MS)
  await deliverer.idle()
  clearTimeout(grace)
  await sender.close()
}

/** How many old events one statement deletes, and how long a round may take, in milliseconds. */
const OLD_EVENTS = 1_000
const FORGET_MS = 20_000

/** Deletes old events without pending deliveries, with their deliveries and attempts, for some seconds at most. */
export async function forgetOldEvents(ctx: Context): Promise<void> {
  const endsAt = performance.now() + FORGET_MS
  while (!ctx.signal.aborted && performance.now() < endsAt && (await forgetSome(ctx)) > 0);
}

/**
 * Deletes a batch of old events and returns how many. An event stays if one of its deliveries was resent or is being
 * changed, because the row lock reads the delivery's current state. Other processes take other events.
 */
async function forgetSome(ctx: Context): Promise<number> {
  const before = new Date(ctx.now().getTime() - ctx.settings.webhooks.retentionMs)
  const { rows } = await sql<{ n: number }>`with old as (select e.id from events e where e.created_at < ${before}
      and not exists (select from deliveries d where d.event_id = e.id and d.status = 'pending')
      order by e.created_at limit ${OLD_EVENTS} for no key update of e skip locked),
    ours as (select d.id, d.event_id, d.status from deliveries d join old on old.id = d.event_id
      for no key update of d skip locked),
    gone as (select id from old where not exists (select from deliveries d where d.event_id = old.id
      and d.id not in (select id from ours where status <> 'pending'))),
    attempts as (delete from delivery_attempts a using ours join gone on gone.id = ours.event_id where a.delivery_id = ours.id),
    deleted as (delete from events using gone where events.id = gone.id returning 1)
    select count(*)::int as n from deleted`.execute(ctx.db)
  return rows[0]?.n ?? 0
}
