/**
 * Watches the credentials of answers that last: a stream, a file, a long-poll. Each ends when its API key or session ends or changes, or
 * its person's role is changed or taken: at once by a notification of the change, otherwise at the next check. Nothing is remembered
 * as valid: a notification only says what to read again.
 */
import { sql } from "kysely"
import { type Context, wallTime } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Watch, Watched } from "../../platform/http/authenticate.ts"
import { keyHolds } from "./manage-api-keys.ts"

/** How often all are read again: a notification can be lost. */
const CHECK_MS = 15_000

const LONGEST_TIMER_MS = 2 ** 31 - 1_000

interface Held extends Watched {
  ended: AbortController
  /** Until it ends by itself, as far as the last check knows. */
  end: NodeJS.Timeout | undefined
}

/** When what holds will end by itself: null if it does not. */
type Ends = ReadonlyMap<string, Date | null>

/** The names that changes of the credential are notified by. */
const namesOf = ({ apiKey, member, sessionId }: Watched): string[] =>
  [apiKey?.id, sessionId, member && `${member.merchantId} ${member.personId}`].filter(name => name !== undefined)

/** When each of these sessions ends if nobody uses it any more, keyed by id, of those that have not ended. */
type Lasting = (ids: readonly string[]) => Promise<ReadonlyMap<string, Date>>

/** Returns a function that watches the credential of an answer until the answer is closed. */
export function openCredentialWatch(ctx: Context, lasting: Lasting): (credential: Watched) => Watch {
  const all = new Set<Held>()
  let timer: NodeJS.Timeout | undefined
  const check = async (held: Held[]): Promise<void> => {
    if (held.length === 0) return
    // Where the database can't be asked, the next check does.
    const valid = await stillValid(ctx, lasting, held).catch(() => undefined)
    if (!valid) return
    for (const each of held)
      if (textsOf(each).some(text => !valid.has(text))) each.ended.abort()
      // Its end may have been moved, earlier too.
      else if (all.has(each)) {
        clearTimeout(each.end)
        each.end = endTimer(ctx, each, valid, () => void check([each]))
      }
  }
  const checkAll = () => void check([...all])
  ctx.wakes.onChange("credential", {
    changed: name => void check([...all].filter(each => namesOf(each).includes(name))),
    missed: checkAll,
  })
  return credential => {
    const ended = new AbortController()
    if (namesOf(credential).length === 0) return { signal: ended.signal, close: () => {} }
    const held: Held = { ...credential, ended, end: undefined }
    all.add(held)
    timer ??= setInterval(checkAll, CHECK_MS).unref()
    // It may have ended between the check of the request and this.
    void check([held])
    const close = () => {
      all.delete(held)
      clearTimeout(held.end)
      if (all.size > 0) return
      clearInterval(timer)
      timer = undefined
    }
    return { signal: ended.signal, close }
  }
}

/** Calls `check` when a credential ends by itself; undefined where it does not, or later than a timer can wait. */
function endTimer(ctx: Context, held: Held, ends: Ends, check: () => void): NodeJS.Timeout | undefined {
  const times = textsOf(held).flatMap(text => ends.get(text)?.getTime() ?? [])
  if (times.length === 0) return undefined
  // The end of a session is wall time, which differs in a sandbox alone, by what its clock was moved.
  const now = held.sessionId === undefined ? ctx.now() : wallTime(ctx)
  const ms = Math.min(...times) - now.getTime()
  return ms < LONGEST_TIMER_MS ? setTimeout(check, Math.max(ms, 0) + 1).unref() : undefined
}

/** What must be found of a credential: a key with its scopes, a session, a membership with its role. */
const textsOf = ({ apiKey, member, sessionId }: Watched): string[] =>
  [
    apiKey && `${apiKey.id} ${[...apiKey.scopes].sort()} ${apiKey.allowedIps}`,
    apiKey?.hash,
    sessionId,
    member && `${member.merchantId} ${member.personId} ${member.role}`,
  ].filter(text => text !== undefined)

async function stillValid(ctx: Context, lasting: Lasting, held: readonly Held[]): Promise<Ends> {
  const { db } = ctx
  const ids = (of: (each: Held) => string | undefined) => [...new Set(held.flatMap(each => of(each) ?? []))]
  const keys = ids(({ apiKey }) => apiKey?.id)
  const sessions = ids(({ sessionId }) => sessionId)
  const members = held.flatMap(({ member }) => member ?? [])
  const found = new Map<string, Date | null>()
  if (keys.length > 0)
    for (const key of await db
      .selectFrom("api_keys as k")
      .select(["id", "scopes", "allowed_ips", "hash", "previous_hash", "previous_until"])
      .select(sql<Date | null>`least(expires_at, beyond_until)`.as("end"))
      .where("id", "in", keys)
      .where(keyHolds(ctx))
      .execute()) {
      found.set(`${key.id} ${[...key.scopes].sort()} ${key.allowed_ips}`, key.end).set(key.hash, key.end)
      if (key.previous_hash !== null && key.previous_until && key.previous_until > ctx.now())
        found.set(key.previous_hash, key.previous_until)
    }
  if (sessions.length > 0) for (const [id, end] of await lasting(sessions)) found.set(id, end)
  if (members.length === 0) return found
  const merchants = sqlArray(
    "text",
    members.map(({ merchantId }) => merchantId),
  )
  const persons = sqlArray(
    "text",
    members.map(({ personId }) => personId),
  )
  const { rows } = await sql<{ valid: string }>`
    select m.merchant_id || ' ' || m.person_id || ' ' || m.role as valid from members m
    join (select distinct merchant, person from unnest(${merchants}, ${persons}) as asked (merchant, person)) asked
      on asked.person = m.person_id and asked.merchant = m.merchant_id`.execute(db)
  for (const { valid } of rows) found.set(valid, null)
  return found
}
