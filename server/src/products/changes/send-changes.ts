/**
 * Sends a merchant's changes as server-sent events or as the answer to a long poll. A caller resumes from the id of
 * the last message that it received.
 */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { endWithCredential } from "../../platform/http/end-with-credential.ts"
import { waitsOf } from "../../platform/http/open-waits.ts"
import type { Wakes } from "../../platform/jobs/wake.ts"
import { feedOf, type Message, messagesOf } from "./follow-changes.ts"
import { isAfter, laterOf, type Position, positionIn, textOf } from "./position.ts"
import { changesOf, type Now, type Page } from "./queries.ts"

/** The most streams per person. A browser's tabs share one stream; each program adds another. */
const MAX_BY_PERSON = 5
const MAX_BY_MERCHANT = 50
const HEARTBEAT_MS = 15_000
/** How long the caller waits before it reconnects, in milliseconds. */
const RETRY_MS = 2_000
/** A stream's maximum duration, so that dead connections and expired tokens don't stay. The caller reconnects. */
const LIFE_MS = 600_000
/** The most unread bytes of a stream. Above this limit, changes stay in the database until the caller has read. */
const MAX_UNREAD_BYTES = 64 * 1024
/** A caller that leaves bytes unread this long is disconnected, and can resume from its last id. */
const STALLED_MS = 10_000
const PAGE = 100

const held = new WeakMap<Wakes, Map<string, number>>()

/**
 * Takes one of the caller's slots and one of the merchant's; returns the function that frees both. Throws
 * `RATE_LIMITED`.
 */
function takePlace(ctx: Context, request: FastifyRequest, merchantId: string, leave: () => void): () => void {
  const { member, apiKey } = request
  const person = `${merchantId} ${member?.personId ?? apiKey?.id}`
  const counts = held.get(ctx.wakes) ?? new Map<string, number>()
  held.set(ctx.wakes, counts)
  const count = counts.get(person) ?? 0
  if (count >= MAX_BY_PERSON)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      `You already have ${MAX_BY_PERSON} streams of changes open, which is the limit. Share one among your tabs, or close one.`,
    )
  const giveBack = waitsOf(ctx).streams.take({ name: merchantId, most: MAX_BY_MERCHANT }, leave)
  if (!giveBack)
    throw new ApiError("RATE_LIMITED", undefined, "Too many streams of changes are open here. Try again in a minute.")
  counts.set(person, count + 1)
  let isHeld = true
  return () => {
    // A request that failed gives its slots back, and its connection closes after that.
    if (!isHeld) return
    isHeld = false
    const left = (counts.get(person) ?? 1) - 1
    if (left > 0) counts.set(person, left)
    else counts.delete(person)
    giveBack()
  }
}

/** The position from which a caller resumes; undefined if it may have missed changes and must read everything again. */
function continuedFrom(after: ReturnType<typeof positionIn>, now: Now): Position | undefined {
  if (!after || after.epoch !== now.epoch || after.xid > now.xmax) return undefined
  return now.first && isAfter(now.first, after) ? undefined : after
}

/** Sends the stream until the caller leaves, its credential ends, or it stops reading. Throws `RATE_LIMITED`. */
export async function streamChanges(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  merchantId: string,
  after: string | undefined,
): Promise<void> {
  const { raw } = reply
  const end = () => void raw.end()
  const giveBack = takePlace(ctx, request, merchantId, end)
  raw.once("close", giveBack)
  if (raw.destroyed) return giveBack()
  const first = await changesOf(ctx, merchantId, after === undefined ? undefined : positionIn(after), 1).catch(
    error => {
      giveBack()
      throw error
    },
  )
  reply.hijack()
  // The caller has left, so no later `close` event would end what follows.
  if (raw.destroyed) return
  endWithCredential(ctx, request, reply)
  raw.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    // A proxy that buffers the answer would show nothing for minutes.
    "x-accel-buffering": "no",
  })
  const position = after === undefined ? undefined : continuedFrom(positionIn(after), first.now)
  // If there is no change to show, the first read's rows are not needed.
  const from = position ?? { xid: first.now.xmin, n: 0n }
  const kind = after === undefined || position ? "ready" : "reset"
  raw.write(`retry: ${RETRY_MS}\n\n${eventOf(first.now.epoch, from, kind, {})}`)
  const close = openStream(ctx, raw, { merchantId, epoch: first.now.epoch, from, requestId: request.id })
  const life = setTimeout(end, LIFE_MS).unref()
  ctx.signal.addEventListener("abort", end, { once: true })
  raw.once("close", () => {
    clearTimeout(life)
    ctx.signal.removeEventListener("abort", end)
    close()
  })
  if (ctx.signal.aborted) end()
}

const eventOf = (epoch: string, position: Position, name: string, data: object): string =>
  `id: ${textOf(epoch, position)}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`

const messageOf = (epoch: string, message: Message): string => {
  const { xid: _, n: __, ...data } = message
  return eventOf(epoch, message, "change", { id: textOf(epoch, message), ...data })
}

interface Stream {
  merchantId: string
  epoch: string
  from: Position
  requestId: string
}

/**
 * Writes changes to a connection, and returns the function that closes it. While catching up, the stream reads the
 * database page by page at the caller's speed. Then the process's reader supplies the changes, until too much is
 * unread and the stream catches up again.
 */
function openStream(
  ctx: Context,
  raw: FastifyReply["raw"],
  { merchantId, epoch, from, requestId }: Stream,
): () => void {
  const feed = feedOf(ctx)
  /** All changes up to this position are written. */
  let at = from
  let isLive = false
  const write = (messages: readonly Message[]): boolean => {
    if (raw.writableEnded || raw.destroyed) return true
    for (const message of messages) {
      if (!isAfter(message, at)) continue
      if (raw.writableLength > MAX_UNREAD_BYTES) return false
      raw.write(messageOf(epoch, message))
      at = { xid: message.xid, n: message.n }
    }
    return true
  }
  const cut = (error: unknown, words: string) => {
    if (raw.destroyed) return
    ctx.log.info({ err: error, requestId }, words)
    raw.destroy()
  }
  async function catchUp(): Promise<void> {
    while (!raw.destroyed && !raw.writableEnded) {
      if (!(await isRead(raw))) return cut(undefined, "a stream of changes was cut off: its caller does not read")
      const page = await changesOf(ctx, merchantId, at, PAGE)
      // The caller reconnects and gets a `reset`.
      if (page.now.epoch !== epoch) return void raw.end()
      const messages = (await messagesOf(ctx, page.changes)).get(merchantId) ?? []
      const isWritten = write(messages)
      if (isWritten) at = laterOf(at, page.end)
      const given = feed.position()
      // No `await` comes between this check and the reader, so no change is missed.
      if (isWritten && !page.isFull && given && !isAfter(given, at)) {
        isLive = true
        return
      }
    }
  }
  const begin = () =>
    void catchUp().catch(error => cut(error, "a stream of changes was cut off: they could not be read"))
  const { begun, close } = feed.follow({
    merchantId,
    take: (messages, end) => {
      if (!isLive) return
      if (write(messages)) at = laterOf(at, end)
      else {
        isLive = false
        begin()
      }
    },
    reset: () => void raw.end(),
  })
  void begun.then(begin)
  const beat = setInterval(() => {
    // Carries the position, so that an idle caller does not fall behind the retained changes.
    if (isLive && !raw.writableEnded && raw.writableLength <= MAX_UNREAD_BYTES)
      raw.write(eventOf(epoch, at, "beat", {}))
  }, HEARTBEAT_MS).unref()
  return () => {
    clearInterval(beat)
    close()
  }
}

/** Waits until the caller has read everything; returns false if that takes too long. */
async function isRead(raw: FastifyReply["raw"]): Promise<boolean> {
  if (raw.writableLength <= MAX_UNREAD_BYTES) return true
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const drained = () => resolve(true)
  const timer = setTimeout(() => resolve(false), STALLED_MS)
  raw.once("drain", drained).once("close", drained)
  const isDrained = await promise
  clearTimeout(timer)
  raw.off("drain", drained).off("close", drained)
  return isDrained
}

/**
 * Returns at most 100 changes after a position; without a position, returns the current one. Waits up to `waitS`
 * seconds for the first change. Throws `RATE_LIMITED` if the caller has too many concurrent waits.
 */
export async function awaitChanges(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  { merchantId, after, waitS }: { merchantId: string; after: string | undefined; waitS: number },
) {
  const asked = after === undefined ? undefined : positionIn(after)
  const read = () => changesOf(ctx, merchantId, asked, PAGE)
  let page = await read()
  const position = continuedFrom(asked, page.now)
  if (position && page.changes.length === 0 && waitS > 0) {
    const left = new AbortController()
    const giveBack = takePlace(ctx, request, merchantId, () => left.abort())
    const onClose = () => left.abort()
    reply.raw.once("close", onClose)
    endWithCredential(ctx, request, reply)
    const signal = AbortSignal.any([left.signal, ctx.signal])
    try {
      await nextChange(ctx, merchantId, page, { waitMs: waitS * 1_000, signal })
      if (!reply.raw.destroyed) page = await read()
    } finally {
      giveBack()
      reply.raw.off("close", onClose)
    }
  }
  const { epoch } = page.now
  if (!position)
    return { data: [], next: textOf(epoch, { xid: page.now.xmin, n: 0n }), more: false, reset: after !== undefined }
  const messages = (await messagesOf(ctx, page.changes)).get(merchantId) ?? []
  const data = messages.map(({ xid, n, ...shown }) => ({ id: textOf(epoch, { xid, n }), ...shown }))
  return { data, next: textOf(epoch, laterOf(position, page.end)), more: page.isFull, reset: false }
}

/** Resolves when the merchant may have a change after the page, when `waitMs` is over, or when the signal aborts. */
async function nextChange(
  ctx: Context,
  merchantId: string,
  { end: seen }: Page,
  { waitMs, signal }: { waitMs: number; signal: AbortSignal },
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const feed = feedOf(ctx)
  const timer = setTimeout(resolve, waitMs)
  signal.addEventListener("abort", () => resolve(), { once: true })
  if (signal.aborted) resolve()
  let isCounted = false
  const { close } = feed.follow({
    merchantId,
    take: messages => {
      if (messages.length > 0) resolve()
      // Neither the page nor the reader's first read contains the changes between the two.
      else if (!isCounted) void missed()
      isCounted = true
    },
    reset: () => resolve(),
  })
  async function missed(): Promise<void> {
    const { changes } = await changesOf(ctx, merchantId, seen, 1).catch(() => ({ changes: [] }))
    if (changes.length > 0) resolve()
  }
  await promise
  clearTimeout(timer)
  close()
}
