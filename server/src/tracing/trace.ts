/**
 * Traces: what the service does for one payment, in all processes and over hours. Other code knows only this file;
 * OpenTelemetry is behind `open-tracing.ts`, and is loaded only where a collector is set.
 */
import type { TxContext } from "../context.ts"

/** Facts about a span. Never a secret, an email, a token, calldata, or an address with its query. */
export type Attributes = Record<string, string | number | boolean | undefined>

/** One step of a trace. It is not exported before it has ended. */
export interface Span {
  /** The text that a row stores, so that another process can continue the trace (W3C Trace Context). */
  readonly traceparent: string
  set(attributes: Attributes): void
  /** Links a related span of another trace. */
  link(traceparent: string): void
  /**
   * Marks the step as failed. The code is one of a few words, never a message. Without a code, `error.type` stays as it
   * was set.
   */
  fail(code?: string): void
  /** Ends it now, or at this time in milliseconds of Unix time. */
  end(atMs?: number): void
}

export interface SpanOptions {
  /** Whether the span is a call to something (`client`) or from somebody (`server`); neither by default. */
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
  /** The active span, inside which the current code runs. */
  active(): Span | undefined
  /** Runs `work`, and everything that it waits for, inside this span. */
  within<T>(span: Span, work: () => T): T
  /** The ids of the active span, for log lines. */
  logFields(): Record<string, string>
  /** Sends the spans that have ended, and resolves when that is done. */
  flush(): Promise<void>
  /** Sends the spans that have ended, for at most `mostMs`, and nothing afterwards. */
  close(mostMs: number): Promise<void>
}

type Traceable = Pick<TxContext, "tracing" | "onCommit">

/** What a row that is written now stores to continue the active trace; null without one. */
export const traceparentNow = ({ tracing }: Pick<Traceable, "tracing">): string | null =>
  tracing?.active()?.traceparent ?? null

/**
 * What a row stores that belongs to the trace of another row: the active span where it is in the same trace, otherwise
 * what the other row stores. An active span of another trace, as of a request about an older payment, is linked to it.
 */
export function continueTrace({ tracing }: Pick<Traceable, "tracing">, of: string | null): string | null {
  const now = tracing?.active()
  if (!now || of === null) return now?.traceparent ?? of
  if (traceIdOf(now.traceparent) === traceIdOf(of)) return now.traceparent
  now.link(of)
  return of
}

/**
 * What a row that serves several payments stores: a new trace that links theirs; if all belong to one trace, that one.
 */
export function joinTraces(ctx: Traceable, name: string, all: readonly (string | null)[]): string | null {
  const traces = new Map(all.flatMap(each => (each === null ? [] : [[traceIdOf(each), each]])))
  const [first] = traces.values()
  return traces.size > 1 ? beginTrace(ctx, name, { links: [...traces.values()] }) : continueTrace(ctx, first ?? null)
}

/**
 * Begins a trace and returns what a row stores of it; null without tracing. Its span ends at the time of this call, and
 * is exported once the transaction commits.
 */
export function beginTrace(ctx: Traceable, name: string, options: Omit<SpanOptions, "parent">): string | null {
  const span = ctx.tracing?.start(name, { ...options, parent: null })
  if (!span) return null
  const endMs = unixMs()
  ctx.onCommit(() => span.end(endMs))
  return span.traceparent
}

const traceIdOf = (traceparent: string): string => traceparent.slice(3, 35)

/** The current Unix time in milliseconds, with fractions. */
export const unixMs = (): number => performance.timeOrigin + performance.now()

/**
 * Runs `work` in a span. Runs only `work` where there is no tracing, or neither a parent nor an active span. A span
 * inside a transaction ends with its commit: work that was rolled back is not in the trace.
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

/** A word for an error that reveals nothing about whom it concerns. */
export function codeOf(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown }
  return typeof code === "string" ? code : typeof name === "string" ? name : "Error"
}

const VALID = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** Parses a `traceparent` in exactly the form of W3C Trace Context version 00; undefined for anything else. */
export const parseTraceparent = (text: unknown): string | undefined =>
  typeof text === "string" && VALID.test(text) ? text : undefined
