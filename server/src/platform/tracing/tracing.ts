/** The tracing of a process, independent of what exports the spans. */

/** Facts about a span. Attributes never contain a secret, an email, a token, calldata, or an address with its query. */
export type Attributes = Record<string, string | number | boolean | undefined>

/** One step of a trace. A span is exported only after it has ended. */
export interface Span {
  /** The text that a row stores, so that another process can continue the trace (W3C Trace Context). */
  readonly traceparent: string
  set(attributes: Attributes): void
  /** Links a related span of another trace. */
  link(traceparent: string): void
  /**
   * Marks the step as failed. The code is one of a few words, never a message. Without a code, `error.type` keeps its
   * value.
   */
  fail(code?: string): void
  /** Ends the span now, or at this Unix time in milliseconds. */
  end(atMs?: number): void
}

export interface SpanOptions {
  /** Whether the span is an outgoing call (`client`) or an incoming one (`server`); neither by default. */
  kind?: "server" | "client"
  attributes?: Attributes
  /**
   * The `traceparent` of a row, which the span continues. Null for a new trace; undefined for the active span's trace.
   */
  parent?: string | null | undefined
  /**
   * The `traceparent` of other traces. With links, a new trace is recorded exactly when one of the linked traces is.
   */
  links?: readonly string[]
  /** Milliseconds of Unix time; now by default. */
  startMs?: number
}

/** The tracing of one process. */
export interface Tracing {
  start(name: string, options?: SpanOptions): Span
  /** The active span, inside which the current code runs. */
  active(): Span | undefined
  /** Runs `work`, and everything that it awaits, inside this span. */
  within<T>(span: Span, work: () => T): T
  /** The ids of the active span, for log lines. */
  logFields(): Record<string, string>
  /** Sends the spans that have ended, and resolves when that is done. */
  flush(): Promise<void>
  /** Sends the spans that have ended, for at most `maxMs`, and nothing afterwards. */
  close(maxMs: number): Promise<void>
}

/** A word for an error that reveals nothing about the people concerned. */
export function codeOf(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown }
  return typeof code === "string" ? code : typeof name === "string" ? name : "Error"
}
