/**
 * Traces: the service's work for one payment, in all processes and over hours. Other code knows only this file.
 * OpenTelemetry is behind `open-tracing.ts`, and is loaded only if a collector is set.
 */
import type { TxContext } from "../context.ts"
import { codeOf, type Span, type SpanOptions, type Tracing } from "./tracing.ts"

type Traceable = Pick<TxContext, "tracing" | "onCommit">

/** The text that a new row stores to continue the active trace; null without one. */
export const traceparentNow = ({ tracing }: Pick<Traceable, "tracing">): string | null =>
  tracing?.active()?.traceparent ?? null

/**
 * The text that a row stores to join another row's trace: the active span if it is in that trace, otherwise the other
 * row's text. An active span of another trace, such as a request about an older payment, is linked to it.
 */
export function continueTrace({ tracing }: Pick<Traceable, "tracing">, of: string | null): string | null {
  const now = tracing?.active()
  if (!now || of === null) return now?.traceparent ?? of
  if (traceIdOf(now.traceparent) === traceIdOf(of)) return now.traceparent
  now.link(of)
  return of
}

/** The text for a row that serves several payments: a new trace that links theirs, or their trace if they share one. */
export function joinTraces(ctx: Traceable, name: string, all: readonly (string | null)[]): string | null {
  const traces = new Map(all.flatMap(each => (each === null ? [] : [[traceIdOf(each), each]])))
  const [first] = traces.values()
  return traces.size > 1 ? beginTrace(ctx, name, { links: [...traces.values()] }) : continueTrace(ctx, first ?? null)
}

/**
 * Starts a trace and returns the text that a row stores to continue it; null without tracing. The trace's span ends at
 * the time of this call, and is exported once the transaction commits.
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
 * Runs `work` in a span. Without tracing, or with neither a parent nor an active span, it only runs `work`. A span
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

const VALID = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** Parses a `traceparent` in exactly the form of W3C Trace Context version 00; undefined for anything else. */
export const parseTraceparent = (text: unknown): string | undefined =>
  typeof text === "string" && VALID.test(text) ? text : undefined
