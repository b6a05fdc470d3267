/** The log of requests in SQL. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { timeAt } from "../../platform/http/time.ts"
import type { RequestFilters } from "./schema.ts"

/** How long an entry is kept, in milliseconds. */
const KEPT_MS = 30 * 86_400_000
/** How many entries one statement deletes, and how long a round may take, in milliseconds. */
const BATCH = 5_000
const FORGET_MS = 20_000
/**
 * The maximum number of entries that are returned for an id, because a caller may reuse one id for all its requests.
 */
const FOUND_AT_MOST = 100

/** What was known about a request when it was answered. */
export interface Entry {
  at: Date
  requestId: string
  method: string
  route: string
  status: number
  code: string | null
  refusal: string | null
  durationMs: number
  keyId: string | null
  /** The merchant, if it was found while the request was answered. */
  merchantId: string | null
  /** The person, and the merchant that the request named, which may not be the person's. */
  iss: string | null
  sub: string | null
  named: string | null
}

/**
 * Writes entries. If a person's request was refused before its merchant was known, the entry gets the merchant that the
 * request named, or the person's only one. If the person is not a member of that merchant, no entry is written.
 */
export async function writeRequests({ db }: TxContext, entries: readonly Entry[]): Promise<void> {
  await sql`/* named: write_requests */
    insert into requests (merchant_id, at, request_id, method, route, status, code, api_key_id, person_id, duration_ms, refusal)
    select coalesce(g."merchantId", whose.merchant_id), g.at, g."requestId", g.method, g.route, g.status, g.code, g."keyId", whose.person_id,
      g."durationMs", g.refusal
    from jsonb_to_recordset(${JSON.stringify(entries)}::jsonb) as g(at timestamptz, "requestId" text, method text, route text,
        status smallint, code text, refusal text, "durationMs" int, "keyId" text, "merchantId" text, iss text, sub text, named text)
      left join lateral (select min(p.id) as person_id, case when count(*) = 1 then min(m.merchant_id) end as merchant_id
        from persons p join members m on m.person_id = p.id
        where p.iss = g.iss and p.sub = g.sub and (coalesce(g."merchantId", g.named) is null or m.merchant_id = coalesce(g."merchantId", g.named))
      ) whose on g.sub is not null
    where coalesce(g."merchantId", whose.merchant_id) is not null`.execute(db)
}

/** A merchant's matching entries, unordered; throws `VALIDATION_ERROR` if a time in the filter does not exist. */
export function requestsOf({ db }: TxContext, merchantId: string, filters: RequestFilters) {
  const { status, by, key, person, route, from, to } = filters
  let query = db.selectFrom("requests").selectAll().where("merchant_id", "=", merchantId)
  if (status === "refused") query = query.where("status", ">=", 400)
  else if (status !== undefined) {
    const hundred = Number.parseInt(status, 10) * 100
    query = query.where("status", ">=", hundred).where("status", "<", hundred + 100)
  }
  // Repeats the condition of the index on refused requests, so that the planner can use it.
  if (status === "4xx" || status === "5xx") query = query.where(sql<boolean>`status >= 400`)
  if (by === "key") query = query.where("api_key_id", "is not", null)
  if (by === "person") query = query.where("api_key_id", "is", null)
  if (key !== undefined) query = query.where("api_key_id", "=", key)
  if (person !== undefined) query = query.where("person_id", "=", person)
  if (route !== undefined) query = query.where("route", "=", route)
  if (from !== undefined) query = query.where("at", ">=", timeAt("from", from))
  if (to !== undefined) query = query.where("at", "<", timeAt("to", to))
  return query
}

/** A merchant's entries with this request id, newest first, at most 100. */
export const requestsById = ({ db }: TxContext, merchantId: string, id: string): Promise<Row<"requests">[]> =>
  db
    .selectFrom("requests")
    .selectAll()
    .where("merchant_id", "=", merchantId)
    .where("request_id", "=", id)
    .orderBy("at", "desc")
    .orderBy("n", "desc")
    .limit(FOUND_AT_MOST)
    .execute()

/** Formats an entry for the API. */
export const entryOf = (row: Row<"requests">) => ({
  at: row.at.toISOString(),
  requestId: row.request_id,
  method: row.method,
  route: row.route,
  status: row.status,
  code: row.code,
  keyId: row.api_key_id,
  personId: row.person_id,
  durationMs: row.duration_ms,
  refusal: row.refusal,
})

/** Deletes entries older than 30 days, for a limited time. */
export async function forgetOldRequests(ctx: TxContext & { signal?: AbortSignal }): Promise<void> {
  const before = new Date(ctx.now().getTime() - KEPT_MS)
  const endsAt = performance.now() + FORGET_MS
  for (let removed = BATCH; removed === BATCH && !ctx.signal?.aborted && performance.now() < endsAt; ) {
    const { numAffectedRows } = await sql`delete from requests where (merchant_id, at, n) in (
      select merchant_id, at, n from requests where at < ${before} order by at limit ${BATCH})`.execute(ctx.db)
    removed = Number(numAffectedRows ?? 0)
  }
}
