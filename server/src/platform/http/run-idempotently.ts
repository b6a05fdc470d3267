/**
 * Idempotency keys: a repeated request is executed once, and gets the first answer again.
 *
 * A request takes three steps. The reservation commits before the work, so that a second request sees that the first is
 * still running. The answer commits with the work, in one transaction, so that neither exists without the other. An
 * error releases the reservation, so that the caller may correct the request and use the same key.
 *
 * Work that is one statement takes one step: if the key is free, its statement stores the answer too ({@link
 * KeptAnswer}).
 *
 * Idempotency keys are for routes that create something or move money. A route whose answer contains a secret uses
 * {@link idempotentlySealed}: it keeps the answer encrypted, for an hour, for its caller only. Other routes ignore the
 * header instead of refusing it, because many clients send a key with every POST.
 */
import { createHash, randomUUID } from "node:crypto"
import type { FastifyRequest } from "fastify"
import { sql } from "kysely"
import { type Context, type InTransaction, inTransaction, type TxContext } from "../context.ts"
import { undurable } from "../db/open.ts"
import { DatabaseUnavailable } from "../db/pool.ts"
import { ApiError, invalid } from "../errors.ts"
import { seal, unseal } from "../secrets.ts"
import { asWritten } from "./json.ts"

const KEPT_S = 24 * 3_600
/** Long enough for a caller that lost the answer, and short for a secret. */
const SEALED_S = 3_600
const LEASE_S = 60
/** A running request ends within this time; otherwise its process was killed and the lease expires. */
const RETRY_AFTER_S = 1

/** The part of a Fastify reply that is needed here, whatever the types of its route. */
interface Reply {
  statusCode: number
  code(status: number): unknown
  header(name: string, value: string | number): unknown
  type(contentType: string): unknown
  serialize(payload: unknown): string | ArrayBuffer | Buffer
}

type Request = Pick<FastifyRequest, "method" | "headers" | "routeOptions" | "params" | "body" | "apiKey" | "subject">

interface Reservation {
  merchantId: string
  route: string
  key: string
  claimId: string
  /** How long the answer is kept. */
  keptS: number
}

interface Prepared<C extends Context, P, T> {
  prepare: () => Promise<P>
  work: (ctx: InTransaction<C>, prepared: P, keptOf?: (body: T) => KeptAnswer) => Promise<T>
  isOneStatement?: (prepared: P) => boolean
}

/** A row of `idempotency_keys` with its answer, for the statement that does the work. */
export interface KeptAnswer {
  merchant_id: string
  route: string
  key: string
  request_hash: string
  status: number
  answer: string
  kept_s: number
}

interface Answer {
  status: number
  text: string
}

/**
 * Runs `work` in one database transaction and returns its result, with the status that `reply` has by then. With an
 * `Idempotency-Key`, `work` runs once in 24 hours for this merchant and route. Later requests with the same body and
 * path get the first answer again. Throws `VALIDATION_ERROR` for an invalid key, `IDEMPOTENCY_MISMATCH`,
 * `IDEMPOTENCY_IN_PROGRESS`.
 *
 * @example
 * reply.code(201)
 * return await idempotently(ctx, request, reply, merchantId, ctx => createThing(ctx, request.body))
 */
export const idempotently = <T>(
  ctx: Context,
  request: Request,
  reply: Reply,
  merchantId: string,
  work: (ctx: TxContext) => Promise<T>,
): Promise<T> => idempotentlyPrepared(ctx, request, reply, merchantId, { prepare: async () => undefined, work })

/**
 * Does the same for work that needs a step outside the transaction first: `prepare` queries nodes or asks for a
 * wallet's signature, and `work` gets the result. A request that gets the first answer again does not call `prepare`.
 *
 * Work for which `isOneStatement` holds runs without a surrounding transaction, because its statement is a transaction
 * itself. With a key, the work gets `keptOf`, and must write that row in the same statement. If the key is in the
 * table, the work must write nothing and throw. Whatever the work throws, the request then runs in three steps, and
 * gets its answer or error there. `prepare` may only read, because it may run twice, even for an answer that is given
 * again.
 */
export const idempotentlyPrepared = <C extends Context, P, T>(
  ctx: C,
  request: Request,
  reply: Reply,
  merchantId: string,
  parts: Prepared<C, P, T>,
): Promise<T> => {
  const kept: Kept = { put: text => text, take: async text => text }
  const reservation = reservationOf(request, merchantId)
  const runInSteps = () => runKept(ctx, request, reply, { reservation, parts, kept })
  if (!reservation || !parts.isOneStatement) return runInSteps()
  return runAtOnce(ctx, request, reply, reservation, parts).then(done => (done ? done.body : runInSteps()))
}

/** Runs the work and stores its answer in one statement; undefined if that did not happen. */
async function runAtOnce<C extends Context, P, T>(
  ctx: C,
  request: Request,
  reply: Reply,
  { merchantId, route, key, keptS }: Reservation,
  { prepare, work, isOneStatement }: Prepared<C, P, T>,
): Promise<{ body: T } | undefined> {
  const keptOf = (body: T): KeptAnswer => ({
    merchant_id: merchantId,
    route,
    key,
    request_hash: hashOf(request),
    status: reply.statusCode,
    answer: `${reply.serialize(body)}`,
    kept_s: keptS,
  })
  try {
    const prepared = await prepare()
    return isOneStatement?.(prepared) ? { body: await work(ctx, prepared, keptOf) } : undefined
  } catch (error) {
    // Nobody knows whether the answer was written, so the caller must repeat the request with its key.
    if (error instanceof DatabaseUnavailable) throw error
    return undefined
  }
}

/**
 * Does the same for an answer that contains a secret. The answer is kept encrypted under SECRET_KEY for one hour, and
 * given again only to the same person or API key. The audit log then gets an entry about the object with the answer's
 * `id`, or about the merchant.
 */
export async function idempotentlySealed<C extends Context, P, T>(
  ctx: C,
  request: Request,
  reply: Reply,
  merchantId: string,
  parts: Prepared<C, P, T>,
): Promise<T> {
  const { apiKey, subject } = request
  const caller = createHash("sha256").update(JSON.stringify([apiKey?.id, subject?.iss, subject?.sub]))
  const shared = reservationOf(request, merchantId)
  const reservation = shared && { ...shared, route: `${shared.route} ${caller.digest("base64url")}`, keptS: SEALED_S }
  const owner = JSON.stringify([merchantId, reservation?.route, reservation?.key])
  const { secretKeys } = ctx.settings
  const kept: Kept = {
    put: text => seal(secretKeys, "answer", owner, text),
    take: async text => {
      const answer = unseal(secretKeys, "answer", owner, text)
      await noteShownAgain(ctx, merchantId, answer)
      return answer
    },
  }
  return await runKept(ctx, request, reply, { reservation, parts, kept })
}

async function noteShownAgain(ctx: Context, merchantId: string, answer: string): Promise<void> {
  const { id, data } = JSON.parse(answer) as { id?: string; data?: { id?: string } }
  const object = id ?? data?.id ?? merchantId
  await inTransaction(ctx, ({ db }) =>
    sql`select add_audit_entry(${merchantId}, 'secret.shown_again', ${object}, null, null, null)`.execute(db),
  )
}

/** How the text of an answer is stored and read. */
interface Kept {
  put: (text: string) => string
  take: (text: string) => Promise<string>
}

async function runKept<C extends Context, P, T>(
  ctx: C,
  request: Request,
  reply: Reply,
  { reservation, parts, kept }: { reservation: Reservation | undefined; parts: Prepared<C, P, T>; kept: Kept },
): Promise<T> {
  const { prepare, work, isOneStatement = () => false } = parts
  if (!reservation) {
    const prepared = await prepare()
    return isOneStatement(prepared) ? await work(ctx, prepared) : await inTransaction(ctx, ctx => work(ctx, prepared))
  }
  const answered = await runOnce(ctx, reservation, request, {
    prepare,
    work,
    answerOf: body => ({ status: reply.statusCode, text: kept.put(`${reply.serialize(body)}`) }),
  }).catch(error => {
    if (error instanceof ApiError && error.code === "IDEMPOTENCY_IN_PROGRESS")
      reply.header("retry-after", RETRY_AFTER_S)
    throw error
  })
  if ("body" in answered) return answered.body
  reply.code(answered.first.status)
  reply.header("idempotent-replayed", "true")
  // Text already marked as JSON is sent unchanged: it is the first answer, byte for byte.
  reply.type("application/json; charset=utf-8")
  return (await kept.take(answered.first.text)) as T
}

/**
 * Runs one part of a request that commits its parts one by one. The part runs once for the request's key and `part`,
 * the name of the part. The part's result must be plain JSON. Without a key it simply runs.
 */
export async function idempotentlyInPart<C extends Context, P, T>(
  ctx: C,
  request: Request,
  merchantId: string,
  part: string,
  { prepare, work }: { prepare: () => Promise<P>; work: (ctx: InTransaction<C>, prepared: P) => Promise<T> },
): Promise<T> {
  const whole = reservationOf(request, merchantId)
  if (!whole) {
    const prepared = await prepare()
    return await inTransaction(ctx, ctx => work(ctx, prepared))
  }
  // A hash, because the longest key would leave no room for the part's name.
  const key = createHash("sha256").update(`${whole.key} ${part}`).digest("base64url")
  const reservation = { ...whole, route: `${whole.route} part`, key }
  const answerOf = (body: T) => ({ status: 200, text: JSON.stringify(body) })
  const answered = await runOnce(ctx, reservation, request, { prepare, work, answerOf })
  return "body" in answered ? answered.body : JSON.parse(answered.first.text)
}

function reservationOf(request: Request, merchantId: string): Reservation | undefined {
  const key = keyOf(request.headers["idempotency-key"])
  if (key === undefined) return undefined
  return {
    merchantId,
    route: `${request.method} ${request.routeOptions.url}`,
    key,
    claimId: randomUUID(),
    keptS: KEPT_S,
  }
}

/** Runs the work, and stores its answer in the same transaction; or returns the stored answer. */
async function runOnce<C extends Context, P, T>(
  ctx: C,
  reservation: Reservation,
  request: Pick<Request, "params" | "body">,
  {
    prepare,
    work,
    answerOf,
  }: {
    prepare: () => Promise<P>
    work: (ctx: InTransaction<C>, prepared: P) => Promise<T>
    answerOf: (body: T) => Answer
  },
): Promise<{ body: T } | { first: Answer }> {
  const first = await reserve(ctx, reservation, hashOf(request))
  if (first) return { first }
  try {
    const prepared = await prepare()
    return await inTransaction(ctx, async ctx => {
      const body = await work(ctx, prepared)
      await keep(ctx, reservation, answerOf(body))
      return { body }
    })
  } catch (error) {
    if (isTaken(error)) throw new ApiError("IDEMPOTENCY_IN_PROGRESS")
    await release(ctx, reservation).catch(cause =>
      ctx.log.warn({ err: cause }, "an idempotency key could not be released"),
    )
    throw error
  }
}

/** Includes the path's parameters, because the same key for another payment is a mistake, not a repeat. */
const hashOf = ({ params, body }: Pick<Request, "params" | "body">): string =>
  createHash("sha256")
    .update(canonical([params, body]))
    .digest("hex")

/**
 * Deletes answers that were stored for 24 hours, and reservations of processes that died. Keys expire by the database's
 * clock. A process whose clock runs a day ahead would otherwise let a capture or refund be executed twice.
 */
export async function forgetExpiredKeys(ctx: Context): Promise<void> {
  await ctx.db
    .deleteFrom("idempotency_keys")
    .where("expires_at", "<=", sql<Date>`clock_timestamp()`)
    .where(sql<boolean>`coalesce(lease_until < clock_timestamp(), true)`)
    .execute()
}

function keyOf(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined
  // Several headers of this name arrive joined by a comma and a space, which no valid key contains.
  const key = `${header}`
  if (!/^[\x21-\x7e]{1,255}$/.test(key))
    throw invalid("Idempotency-Key", "must be 1 to 255 visible ASCII characters, without spaces")
  return key
}

/**
 * Returns one text for all equivalent spellings of a body: key order and white space are normalized, numbers stay as
 * written. So 5, 5.0 and "5" are three different bodies. A client that repeats a request repeats its bytes, so a
 * different text of an amount is reported as a mismatch.
 */
function canonical(value: unknown, written?: string): string {
  if (Array.isArray(value)) return `[${value.map((each, i) => canonical(each, asWritten(value, `${i}`))).join()}]`
  if (typeof value === "object" && value !== null) {
    const field = (key: string) =>
      `${JSON.stringify(key)}:${canonical((value as Record<string, unknown>)[key], asWritten(value, key))}`
    return `{${Object.keys(value).sort().map(field).join()}}`
  }
  return typeof value === "number" && written !== undefined ? written : (JSON.stringify(value) ?? "")
}

/** Reserves the key for this request, or returns the answer of the first request with it. */
async function reserve(
  ctx: Context,
  { merchantId, route, key, claimId, keptS }: Reservation,
  requestHash: string,
): Promise<Answer | undefined> {
  for (;;) {
    // A reservation with an expired lease has had no effect and can't have one any more, because this statement removes
    // its claim. The commit of a reservation does not wait for the disk. If a database crash undoes the reservation, it
    // undoes the work too: the work commits later, and only while the reservation exists.
    const { rows } = await sql`
      /* named: reserve_key */ insert into idempotency_keys (merchant_id, route, key, request_hash, claim_id, lease_until, expires_at)
      values (${merchantId}, ${route}, ${key}, ${requestHash}, ${claimId},
        clock_timestamp() + make_interval(secs => ${LEASE_S}), clock_timestamp() + make_interval(secs => ${keptS}))
      on conflict (merchant_id, route, key) do update set request_hash = excluded.request_hash,
        claim_id = excluded.claim_id, lease_until = excluded.lease_until, expires_at = excluded.expires_at,
        status = null, answer = null
      where idempotency_keys.lease_until < clock_timestamp()
        or (idempotency_keys.lease_until is null and idempotency_keys.expires_at <= clock_timestamp())
      returning ${undurable(ctx.db)} as undurable`.execute(ctx.db)
    if (rows.length > 0) return undefined

    const found = await sql<{ request_hash: string; status: number | null; answer: string | null }>`
      select /* named: kept_answers */ request_hash, status, answer from idempotency_keys
      where (merchant_id, route, key) = (${merchantId}, ${route}, ${key})`.execute(ctx.db)
    const [first] = found.rows
    // The key was released in the meantime, so it is free now.
    if (!first) continue
    if (first.request_hash !== requestHash) throw new ApiError("IDEMPOTENCY_MISMATCH")
    if (first.status !== null && first.answer !== null) return { status: first.status, text: first.answer }
    throw new ApiError("IDEMPOTENCY_IN_PROGRESS")
  }
}

/** The database's error message for an answer whose reservation now belongs to another request. */
const TAKEN = "reservation taken"

/**
 * Stores the answer, inside the transaction of the work and as its last statement, so that it is sent with the commit.
 * If another request has taken the key since, the database itself refuses the answer, with a cast that fails ({@link
 * isTaken}).
 */
async function keep(ctx: TxContext, reservation: Reservation, { status, text }: Answer): Promise<void> {
  await sql`/* named: keep_answer, deferred */ with kept as (update idempotency_keys
      set status = ${status}, answer = ${text}, claim_id = null, lease_until = null where ${isOurs(reservation)} returning 1)
    select (select case count(*) when 0 then ${TAKEN}::text else '1' end from kept)::integer`.execute(ctx.db)
}

/**
 * The code of Postgres for a text that is not a number. The error's message, including the quotes, is in the server's
 * language.
 */
const NO_NUMBER = "22P02"
const isTaken = (error: unknown): boolean =>
  (error as { code?: unknown }).code === NO_NUMBER && `${(error as Error).message}`.includes(TAKEN)

/** Releases the key. Nothing happens if the key has an answer, or now belongs to another request. */
async function release(ctx: Context, reservation: Reservation): Promise<void> {
  await ctx.db.deleteFrom("idempotency_keys").where(isOurs(reservation)).execute()
}

const isOurs = ({ merchantId, route, key, claimId }: Reservation) =>
  sql<boolean>`(merchant_id, route, key, claim_id) = (${merchantId}, ${route}, ${key}, ${claimId}::uuid)`
