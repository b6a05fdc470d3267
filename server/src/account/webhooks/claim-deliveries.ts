/** Claims due deliveries so that every endpoint gets its turn, however large another endpoint's backlog is. */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { type Db, undurable } from "../../platform/db/open.ts"
import type { Row } from "../../platform/db/schema.ts"

/**
 * The columns that a worker needs. No column is a date, because parsing a date costs more than reading all of these.
 */
const columnNames = [
  "id",
  "event_id",
  "merchant_id",
  "webhook_id",
  "url",
  "lane",
  "by_hand",
  "attempts",
  "claim_id",
] as const

/** A claimed delivery, with the columns that its worker needs. */
export type ClaimedDelivery = Pick<Row<"deliveries">, (typeof columnNames)[number]> & {
  /** The event's body, as sent. */
  body: string
  /** The event's type. */
  type: string
  traceparent: string | null
  target: Target
}

/** The destination. Claimed rows of one endpoint share the object. */
interface Target {
  /** Null if the delivery has no endpoint, or if the endpoint was deleted. */
  endpoint: (Pick<Row<"webhooks">, "url" | "active"> & { failing: boolean }) | null
  /**
   * The current signing secrets, newest first: the endpoint's, or without an endpoint the account's; null if there are
   * none.
   */
  sealed: string[] | null
}

/** What a claim may take. */
interface ClaimJob {
  now: Date
  leaseMs: number
  limit: number
  perLane: number
  taken: ReadonlyMap<string, number>
  /** How many deliveries of each lane are held now. */
  inFlight: ReadonlyMap<string, number>
  /** How many deliveries of a merchant may be claimed; `rooms` holds exceptions by merchant id. */
  room: number
  rooms: ReadonlyMap<string, number>
  afterLane: string
  /** How many lanes one call visits. */
  lanes: number
}

/**
 * Claims due deliveries round-robin over their lanes: the first of each lane, then the second of each, counting those
 * `inFlight`. A claim takes up to `limit` in all, and up to `perLane` minus `taken` from one lane. A merchant gets up
 * to its entry in `rooms`, or else `room`. Merchants take turns too, so one merchant's many lanes don't delay the
 * others. A delivery waits for an earlier one of its lane and `order_key` that was never attempted. The next call
 * passes `nextLane` as `afterLane`; `nextLane` is "" when all lanes were visited.
 *
 * The query hops through the index once per lane, so a lane with 100,000 deliveries costs the other lanes nothing. A
 * plain `order by run_at` would read all deliveries of a lane whenever that lane is full. The earlier delivery is found
 * with `limit 1`, because `not exists` would become a join over the whole lane (66 ms instead of 3 at 100,000 rows). A
 * listener's lane is skipped, because its deliveries are pulled. Only the lease is written, which keeps other workers
 * away. `run_at` is not written, because it is indexed: an update that changes no indexed column costs only a third
 * (measured). The claim returns everything that sending needs, because each further read would add a round trip. Data
 * that rows share is returned once.
 *
 * The claim's commit does not wait for the disk. A database crash can only lose the lease, and the delivery is then due
 * again. Each connection caches the plan, possibly one from a time when nearly empty tables made a full scan cheapest.
 * The planner estimates a limit parameter as a tenth of the rows. With two such parameters, the planner expects one row
 * and uses the index.
 */
export async function claimDeliveries(db: Db, job: ClaimJob): Promise<{ rows: ClaimedDelivery[]; nextLane: string }> {
  const held = sql`lease_until >= clock_timestamp()`
  const columns = sql.join(columnNames.map(name => sql.ref(name)))
  type Answer = Omit<ClaimedDelivery, "body" | "target"> & { body: string | null; next_lane: string; targets: Targets }
  const result = await sql<Answer>`
    /* named: claim_deliveries */ with recursive lanes as (
      (select lane, merchant_id, 1 as n from deliveries where status = 'pending' and lane > ${job.afterLane} order by lane limit 1)
      union all
      select next.lane, next.merchant_id, l.n + 1 from lanes l cross join lateral (
        select t.lane, t.merchant_id from deliveries t where t.status = 'pending' and t.lane > l.lane order by t.lane limit 1) next
      where l.n < ${job.lanes}
    ),
    taken as (select key as lane, value::int as n from jsonb_each_text(${JSON.stringify(Object.fromEntries(job.taken))}::jsonb)),
    in_flight as (select key as lane, value::int as n from jsonb_each_text(${JSON.stringify(Object.fromEntries(job.inFlight))}::jsonb)),
    rooms as (select key as merchant_id, value::int as n from jsonb_each_text(${JSON.stringify(Object.fromEntries(job.rooms))}::jsonb)),
    due as (
      select d.ctid, l.merchant_id, coalesce(rooms.n, ${job.room}::int) as room,
        coalesce(in_flight.n, 0) + row_number() over (partition by l.lane order by d.run_at, d.seq) as turn
      from lanes l left join taken on taken.lane = l.lane left join in_flight on in_flight.lane = l.lane left join rooms on rooms.merchant_id = l.merchant_id
      cross join lateral (
        select t.ctid, run_at, seq from deliveries t
        where t.lane = l.lane and t.status = 'pending' and t.run_at <= ${job.now} and (t.lease_until is null or not ${held})
          and t.seq <= coalesce((select e.seq from deliveries e where e.lane = t.lane and e.order_key = t.order_key
            and e.status = 'pending' and e.attempts = 0 order by e.seq limit 1), t.seq)
        order by t.run_at limit greatest(least(${job.perLane}::int - coalesce(taken.n, 0), coalesce(rooms.n, ${job.room}::int)), 0)
        for no key update of t skip locked) d
      where not starts_with(l.lane, 'lsn_')
    ),
    placed as (select ctid as at, room, row_number() over (partition by merchant_id order by turn) as place from due),
    picked as (select at from (select at from placed where place <= room order by place limit ${job.limit}) t limit ${job.limit}),
    claimed as (
      update deliveries set claim_id = ${randomUUID()},
        lease_until = clock_timestamp() + make_interval(secs => ${job.leaseMs / 1_000})
      from picked where deliveries.ctid = picked.at
      returning seq, ${columns}
    ),
    targets as (${targetsOfClaimed(job.now)})
    select claimed.*, e.type, e.traceparent,
      case when claimed.event_id is distinct from lag(claimed.event_id) over (order by claimed.seq) then e.body end as body,
      case when lag(claimed.seq) over (order by claimed.seq) is null then (select all_targets from targets) end as targets, last.next_lane
    from (select coalesce((select lane from lanes where n = ${job.lanes}), '') as next_lane,
        ${undurable(db)} as commits) last
      left join claimed on true
      left join events e on e.id = claimed.event_id
    order by claimed.seq`.execute(db)
  const [first] = result.rows
  const targets = first?.targets ?? {}
  let body = ""
  const rows: ClaimedDelivery[] = []
  for (const row of result.rows) {
    // If nothing was claimed, one row without an id says where the next call continues.
    if ((row.id as string | null) === null) continue
    // Deliveries of one event are adjacent, and only the first carries the body.
    body = row.body ?? body
    // The row is reused instead of copied: at ten thousand a second, each copy counts.
    rows.push(Object.assign(row, { body, target: targets[row.webhook_id ?? row.merchant_id] ?? NOWHERE }))
  }
  return { rows, nextLane: first?.next_lane ?? "" }
}

/** SQL: one row with the endpoint and secrets of each claimed delivery's destination. */
const targetsOfClaimed = (now: Date) => sql`
  select jsonb_object_agg(coalesce(t.webhook_id, t.merchant_id), jsonb_build_object('sealed', s.sealed,
    'endpoint', case when w.id is not null and w.deleted_at is null then
      jsonb_build_object('url', w.url, 'active', w.active, 'failing', w.failing_since is not null) end)) as all_targets
  from (select distinct webhook_id, case when webhook_id is null then merchant_id end as merchant_id from claimed) t
    left join webhooks w on w.id = t.webhook_id
    left join lateral (select jsonb_agg(x.sealed order by x.id desc) as sealed from (
        select id, sealed, expires_at from webhook_secrets where webhook_id = t.webhook_id
        union all
        select id, sealed, expires_at from webhook_secrets where webhook_id is null and merchant_id = t.merchant_id) x
      where x.expires_at is null or x.expires_at > ${now}) s on true`

/** Keyed by the endpoint's id or, without an endpoint, by the merchant's id. */
type Targets = Record<string, Target> | null

const NOWHERE: Target = { endpoint: null, sealed: null }
