/**
 * Traces: what the service does for one payment, in all processes and over hours. This file is all that the service knows of them;
 * OpenTelemetry is behind `open-tracing.ts`, and is loaded only where a collector is set.
 */
import type { TxContext } from "../context.ts"

/** Facts about a span. Never a secret, an email, a token, calldata, or an address with its query. */
export type Attributes = Record<string, string | number | boolean | undefined>

/** One step of a trace. Nobody sees it until it has ended. */
export interface Span {
  /** What a row keeps, so that another process can continue the trace (W3C Trace Context). */
  readonly traceparent: string
  set(attributes: Attributes): void
  /** Names a span of another trace that has to do with this one. */
  link(traceparent: string): void
  /** Marks the step as failed; the code is a word of few values, never a message. Without one, `error.type` stays as it was set. */
  fail(code?: string): void
  /** Ends it now, or at this time in milliseconds of Unix time. */
  end(atMs?: number): void
}

export interface SpanOptions {
  /** What the span calls, or who called it; neither by default. */
  kind?: "server" | "client"
  attributes?: Attributes
  /** The `traceparent` of a row, which the span continues. Null: a new trace. Undefined: the active span's. */
  parent?: string | null | undefined
  /** The `traceparent` of other traces. With links, a new trace is recorded exactly when one of these is. */
  links?: readonly string[]
  /** Milliseconds of Unix time; now by default. */
  startMs?: number
}

/** The tracing of one process. */
export interface Tracing {
  start(name: string, options?: SpanOptions): Span
  /** The span that is being worked in. */
  active(): Span | undefined
  /** Runs `work`, and whatever it waits for, inside this span. */
  within<T>(span: Span, work: () => T): T
  /** The ids of the active span, for lines of the log. */
  logFields(): Record<string, string>
  /** Sends what has ended, and resolves when that is over. */
  flush(): Promise<void>
  /** Sends what has ended, for at most `mostMs`, and nothing afterwards. */
  close(mostMs: number): Promise<void>
}

type Traceable = Pick<TxContext, "tracing" | "onCommit">

/** What a row that is written now keeps, to continue the active trace; null without one. */
export const traceparentNow = ({ tracing }: Pick<Traceable, "tracing">): string | null =>
  tracing?.active()?.traceparent ?? null

/**
 * What a row keeps that belongs to the trace of another: the active span where that is in the same trace, otherwise what the other row
 * keeps. An active span of another trace, as of a request about an older payment, is linked to it.
 */
export function continueTrace({ tracing }: Pick<Traceable, "tracing">, of: string | null): string | null {
  const now = tracing?.active()
  if (!now || of === null) return now?.traceparent ?? of
  if (traceIdOf(now.traceparent) === traceIdOf(of)) return now.traceparent
  now.link(of)
  return of
}

/** What a row keeps that serves several payments: a trace of its own that names theirs, and that of the payment where it is one. */
export function joinTraces(ctx: Traceable, name: string, all: readonly (string | null)[]): string | null {
  const traces = new Map(all.flatMap(each => (each === null ? [] : [[traceIdOf(each), each]])))
  const [first] = traces.values()
  return traces.size > 1 ? beginTrace(ctx, name, { links: [...traces.values()] }) : continueTrace(ctx, first ?? null)
}

/** Begins a trace and answers what a row keeps of it; null without tracing. Its span is over, or is once the transaction commits. */
export function beginTrace(ctx: Traceable, name: string, options: Omit<SpanOptions, "parent">): string | null {
  const span = ctx.tracing?.start(name, { ...options, parent: null })
  if (!span) return null
  const endMs = unixMs()
  ctx.onCommit(() => span.end(endMs))
  return span.traceparent
}

const traceIdOf = (traceparent: string): string => traceparent.slice(3, 35)

/** Now, in milliseconds of Unix time with their fractions. */
export const unixMs = (): number => performance.timeOrigin + performance.now()

/**
 * Runs `work` in a span, and only `work` where there is no tracing, or no parent and no active span. A span inside a transaction
 * ends with its commit: what was undone is not in the trace.
 */
export function traced<T>(
  ctx: Traceable,
  name: string,
  options: SpanOptions,
  work: (span: Span | undefined) => Promise<T>,
): Promise<T> {
  const { tracing } = ctx
  if (!tracing || (options.parent === undefined && !tracing.active())) return work(undefined)
  return inSpan(ctx, tracing, tracing.start(name, options), work)
}

async function inSpan<T>(
  ctx: Traceable,
  tracing: Tracing,
  span: Span,
  work: (span: Span | undefined) => Promise<T>,
): Promise<T> {
  try {
    const result = await tracing.within(span, () => work(span))
    const endMs = unixMs()
    ctx.onCommit(() => span.end(endMs))
    return result
  } catch (error) {
    span.fail(codeOf(error))
    span.end()
    throw error
  }
}

/** A word for an error that says nothing of whom it happened to. */
export function codeOf(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown }
  return typeof code === "string" ? code : typeof name === "string" ? name : "Error"
}

const VALID = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** A `traceparent` exactly as W3C Trace Context writes version 00; undefined for anything else. */
export const parseTraceparent = (text: unknown): string | undefined =>
  typeof text === "string" && VALID.test(text) ? text : undefined
