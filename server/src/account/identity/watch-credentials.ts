/**
 * Watches the credentials of answers that last: a stream, a file, a long-poll. Each ends when its API key or session ends or changes, or
 * its person's role is changed or taken: at once by a notification of the change, otherwise at the next check. Nothing is remembered
 * as valid: a notification only says what to read again.
 */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Watch, Watched } from "../../platform/http/authenticate.ts"
import { keyHolds } from "./manage-api-keys.ts"

/** How often all are read again: a notification can be lost. */
const CHECK_MS = 15_000

const LONGEST_TIMER_MS = 2 ** 31 - 1_000

interface Held extends Watched {
  ended: AbortController
}

/** The names that changes of the credential are notified by. */
const namesOf = ({ apiKey, member, sessionId }: Watched): string[] =>
  [apiKey?.id, sessionId, member && `${member.merchantId} ${member.personId}`].filter(name => name !== undefined)

/** Which of these sessions have not ended, by their ids. */
type Lasting = (ids: readonly string[]) => Promise<readonly string[]>

/** Returns a function that watches the credential of an answer until the answer is closed. */
export function openCredentialWatch(ctx: Context, lasting: Lasting): (credential: Watched) => Watch {
  const all = new Set<Held>()
  let timer: NodeJS.Timeout | undefined
  const check = async (held: Held[]): Promise<void> => {
    if (held.length === 0) return
    // Where the database can't be asked, the next check does.
    const valid = await stillValid(ctx, lasting, held).catch(() => undefined)
    for (const each of held) if (valid && textsOf(each).some(text => !valid.has(text))) each.ended.abort()
  }
  const checkAll = () => void check([...all])
  ctx.wakes.onChange("credential", {
    changed: name => void check([...all].filter(each => namesOf(each).includes(name))),
    missed: checkAll,
  })
  return credential => {
    const ended = new AbortController()
    if (namesOf(credential).length === 0) return { signal: ended.signal, close: () => {} }
    const held = { ...credential, ended }
    all.add(held)
    timer ??= setInterval(checkAll, CHECK_MS).unref()
    // It may have ended between the check of the request and this.
    void check([held])
    const end = endTimer(ctx, credential, () => void check([held]))
    const close = () => {
      all.delete(held)
      clearTimeout(end)
      if (all.size > 0) return
      clearInterval(timer)
      timer = undefined
    }
    return { signal: ended.signal, close }
  }
}

/** Calls `check` when the secret of a key ends; undefined where it does not, or later than a timer can wait. */
function endTimer(ctx: Context, { apiKey }: Watched, check: () => void): NodeJS.Timeout | undefined {
  if (!apiKey?.endsAt) return undefined
  const ms = apiKey.endsAt.getTime() - ctx.now().getTime()
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

async function stillValid(ctx: Context, lasting: Lasting, held: readonly Held[]): Promise<Set<string>> {
  const { db } = ctx
  const ids = (of: (each: Held) => string | undefined) => [...new Set(held.flatMap(each => of(each) ?? []))]
  const keys = ids(({ apiKey }) => apiKey?.id)
  const sessions = ids(({ sessionId }) => sessionId)
  const members = held.flatMap(({ member }) => member ?? [])
  const found = new Set<string>()
  if (keys.length > 0)
    for (const key of await db
      .selectFrom("api_keys as k")
      .select(["id", "scopes", "allowed_ips", "hash", "previous_hash", "previous_until"])
      .where("id", "in", keys)
      .where(keyHolds(ctx))
      .execute()) {
      found.add(`${key.id} ${[...key.scopes].sort()} ${key.allowed_ips}`).add(key.hash)
      if (key.previous_hash !== null && key.previous_until && key.previous_until > ctx.now())
        found.add(key.previous_hash)
    }
  if (sessions.length > 0) for (const id of await lasting(sessions)) found.add(id)
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
  for (const { valid } of rows) found.add(valid)
  return found
}
