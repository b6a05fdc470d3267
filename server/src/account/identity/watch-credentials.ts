/**
 * Watches the credentials of long answers: streams, files, long-polls. An answer ends when its API key, session or role
 * changes or ends. A notification ends the answer immediately; otherwise, the next check does. Nothing is cached as
 * valid, because a notification only says what to read again.
 */
import { sql } from "kysely"
import { type Context, wallTime } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Watch, Watched } from "../../platform/http/authenticate.ts"
import { keyHolds } from "./manage-api-keys.ts"

/** How often all credentials are read again, because a notification can be lost. */
const CHECK_MS = 15_000

const LONGEST_TIMER_MS = 2 ** 31 - 1_000

interface Held extends Watched {
  ended: AbortController
  /** The timer for the credential's expiry, as the last check read it. */
  end: NodeJS.Timeout | undefined
}

/** When each valid credential expires; null if it never does. */
type Ends = ReadonlyMap<string, Date | null>

/** The names under which notifications report changes of the credential. */
const namesOf = ({ apiKey, member, sessionId }: Watched): string[] =>
  [apiKey?.id, sessionId, member && `${member.merchantId} ${member.personId}`].filter(name => name !== undefined)

/** When each of these open sessions ends if it stays unused, keyed by id. */
type Lasting = (ids: readonly string[]) => Promise<ReadonlyMap<string, Date>>

/** Returns a function that watches an answer's credential until the answer is closed. */
export function openCredentialWatch(ctx: Context, lasting: Lasting): (credential: Watched) => Watch {
  const all = new Set<Held>()
  let timer: NodeJS.Timeout | undefined
  const check = async (held: Held[]): Promise<void> => {
    if (held.length === 0) return
    // If the database can't be queried, the next check decides.
    const valid = await stillValid(ctx, lasting, held).catch(() => undefined)
    if (!valid) return
    for (const each of held)
      if (textsOf(each).some(text => !valid.has(text))) each.ended.abort()
      // The expiry may have moved, possibly to an earlier time.
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
    // The credential may have ended since the request was checked.
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

/**
 * Starts a timer that calls `check` when a credential expires. Returns undefined if the credential never expires, or
 * later than a timer can wait.
 */
function endTimer(ctx: Context, held: Held, ends: Ends, check: () => void): NodeJS.Timeout | undefined {
  const times = textsOf(held).flatMap(text => ends.get(text)?.getTime() ?? [])
  if (times.length === 0) return undefined
  // A session's end is wall time. Only a sandbox's own clock differs from wall time.
  const now = held.sessionId === undefined ? ctx.now() : wallTime(ctx)
  const ms = Math.min(...times) - now.getTime()
  return ms < LONGEST_TIMER_MS ? setTimeout(check, Math.max(ms, 0) + 1).unref() : undefined
}

/** What a check must find: a key with its scopes, a session, or a membership with its role. */
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
