/** Events that are the whole of a change: those that come at the same time share a statement and its commit. */
import type { Context } from "../context.ts"
import { gatherBy } from "../db/gather.ts"
import { continueTrace, traced } from "../tracing/trace.ts"
import { emit, emitAll, type NewEvent } from "./emit.ts"
import type { EventData } from "./events.ts"
import type { UnconditionalType } from "./webhook.ts"

/**
 * An event that waits for no other transaction and undoes none: without a key nothing can hold it up, and only changes of settings are
 * bounded.
 */
type LoneEvent<T extends keyof EventData> = Omit<NewEvent<T>, "dedupeKey">
type LoneType = Exclude<keyof EventData, UnconditionalType>

/** Its id, or why it was not emitted; undefined where it is to be emitted by itself. */
type Emitted = { id: string } | { error: unknown } | undefined

/** With more, the deliveries of one statement would hold up who comes next. */
const MOST_TOGETHER = 100

/**
 * Emits an event that no other change belongs to, and answers its id once that is committed. Events of the same turn of the process, and
 * those that come while earlier ones are being written, are one statement: of thirty, each takes Postgres a quarter of what one alone
 * does. One that the database refuses fails alone. Call `wakes.wakeSoon("deliveries")` afterwards.
 */
export async function emitTogether<T extends LoneType>(ctx: Context, event: LoneEvent<T>): Promise<string> {
  // Here, as the statement is run in the span of whoever came first.
  const own = { ...event, traceparent: continueTrace(ctx, event.traceparent ?? null) }
  const emitted = (await gathered(ctx, own)) ?? (await emitAlone(ctx, own))
  if ("error" in emitted) throw emitted.error
  return emitted.id
}

const gathered = gatherBy(async (ctx: Context, events: readonly LoneEvent<LoneType>[]) => {
  const emitted = new Map<LoneEvent<LoneType>, NonNullable<Emitted>>()
  for (let start = 0; start < events.length; start += MOST_TOGETHER)
    for (const [event, each] of await emitSome(ctx, events.slice(start, start + MOST_TOGETHER)))
      if (each) emitted.set(event, each)
  return emitted
})

async function emitSome(
  ctx: Context,
  events: readonly LoneEvent<LoneType>[],
): Promise<[LoneEvent<LoneType>, Emitted][]> {
  const [only] = events
  if (only && events.length === 1) return [[only, await emitAlone(ctx, only)]]
  const links = events.flatMap(({ traceparent }) => traceparent ?? [])
  try {
    const ids = await traced(ctx, "emit events", { parent: null, links }, () => emitAll(ctx, events))
    return events.map((event, i) => [event, idOf(ids[i])])
  } catch (error) {
    return events.map(event => [event, isOfOne(error) ? undefined : { error }])
  }
}

const emitAlone = (ctx: Context, event: LoneEvent<LoneType>): Promise<NonNullable<Emitted>> =>
  emit(ctx, event).then(idOf, error => ({ error }))

const idOf = (id: string | undefined): NonNullable<Emitted> =>
  id === undefined ? { error: new Error("an event without a key was there already") } : { id }

/** Whether one event can be the reason: the database refuses its values, or its merchant does not exist. Nothing was written then. */
const isOfOne = (error: unknown): boolean => /^2[23]/.test(`${(error as { code?: unknown }).code ?? ""}`)
