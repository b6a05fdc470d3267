/** Tracing with OpenTelemetry's SDK. Import this file only if a collector is set, as `open-tracing.ts` does. */
import { AsyncLocalStorage } from "node:async_hooks"
import { randomUUID } from "node:crypto"
import {
  type Context,
  type Link,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api"
import { JsonTraceSerializer, ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer"
import { resourceFromAttributes } from "@opentelemetry/resources"
import {
  ParentBasedSampler,
  type Sampler,
  SamplingDecision,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace"
import type { TracingSettings } from "../config/tracing-settings.ts"
import { version } from "../version.ts"
import { exportSpans, type Report } from "./export-spans.ts"
import { parseTraceparent, unixMs } from "./trace.ts"
import type { Span, SpanOptions, Tracing } from "./tracing.ts"

const serializers = {
  "http/protobuf": { contentType: "application/x-protobuf", serializer: ProtobufTraceSerializer },
  "http/json": { contentType: "application/json", serializer: JsonTraceSerializer },
} as const

const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT } as const
/** The longest value of an attribute; ids and codes are far shorter. */
const MAX_CHARACTERS = 256

/** Opens tracing. Nothing is registered globally, so a process can have several. */
export function openTelemetry(settings: TracingSettings, report: Report): Tracing {
  const { serviceName, resourceAttributes, ratio, protocol, endpoint, headers } = settings
  const exporter = exportSpans(
    { url: `${endpoint}/v1/traces`, headers: new Map(headers), ...serializers[protocol] },
    report,
  )
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      "service.name": "sluice",
      "service.version": version,
      "service.instance.id": randomUUID(),
      ...Object.fromEntries(resourceAttributes),
      ...(serviceName === undefined ? {} : { "service.name": serviceName }),
    }),
    sampler: samplerOf(ratio),
    spanProcessors: [exporter],
    spanLimits: { attributeValueLengthLimit: MAX_CHARACTERS },
  })
  const tracer = provider.getTracer("sluice", version)
  const storage = new AsyncLocalStorage<Span>()
  return {
    start: (name, { kind, attributes = {}, parent, links = [], startMs = unixMs() }: SpanOptions = {}) => {
      const under = parent === undefined ? storage.getStore()?.traceparent : (parent ?? undefined)
      const options = {
        kind: kind ? kinds[kind] : SpanKind.INTERNAL,
        attributes: defined(attributes),
        links: links.flatMap(linkTo),
        startTime: startMs,
      }
      return wrap(tracer.startSpan(name, options, contextOf(under)))
    },
    active: () => storage.getStore(),
    within: (span, work) => storage.run(span, work),
    logFields: () => {
      const [, trace_id, span_id] = storage.getStore()?.traceparent.split("-") ?? []
      return trace_id && span_id ? { trace_id, span_id } : {}
    },
    flush: () => exporter.forceFlush(),
    close: exporter.close,
  }
}

function wrap(span: OtelSpan): Span {
  const { traceId, spanId, traceFlags } = span.spanContext()
  return {
    traceparent: `00-${traceId}-${spanId}-0${traceFlags & TraceFlags.SAMPLED}`,
    set: attributes => void span.setAttributes(defined(attributes)),
    link: traceparent => void span.addLinks(linkTo(traceparent)),
    fail: code => {
      if (code !== undefined) span.setAttribute("error.type", code)
      // The message is left out, because messages of the database and of nodes repeat their input.
      span.setStatus({ code: SpanStatusCode.ERROR })
    },
    end: (atMs = unixMs()) => span.end(atMs),
  }
}

const defined = (attributes: NonNullable<SpanOptions["attributes"]>) =>
  Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined))

/** Parses a `traceparent`; undefined if it is not valid. Only the flag `sampled` is used. */
function spanContextOf(text: string): SpanContext | undefined {
  const [, traceId = "", spanId = "", flags = ""] = parseTraceparent(text)?.split("-") ?? []
  if (traceId === "") return undefined
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED, isRemote: true }
}

function contextOf(traceparent: string | undefined): Context {
  const parent = traceparent === undefined ? undefined : spanContextOf(traceparent)
  return parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT
}

function linkTo(traceparent: string): Link[] {
  const context = spanContextOf(traceparent)
  return context ? [{ context }] : []
}

/**
 * A trace is recorded completely or not at all, because each later step adopts the first step's decision. A step that
 * serves several payments has its own trace, which is recorded if the trace of one of these payments is.
 */
function samplerOf(ratio: number): Sampler {
  const byRatio = new TraceIdRatioBasedSampler(ratio)
  const root: Sampler = {
    shouldSample: (context, traceId, _name, _kind, _attributes, links) => {
      if (links.length === 0) return byRatio.shouldSample(context, traceId)
      const isRecorded = links.some(link => (link.context.traceFlags & TraceFlags.SAMPLED) !== 0)
      return { decision: isRecorded ? SamplingDecision.RECORD_AND_SAMPLED : SamplingDecision.NOT_RECORD }
    },
    toString: () => `links, or ${byRatio}`,
  }
  return new ParentBasedSampler({ root })
}
