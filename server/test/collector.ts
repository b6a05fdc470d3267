/** A collector of traces in a test: a real HTTP server that decodes what the service exports (OTLP/HTTP, JSON). */
import type { TracingSettings } from "../src/platform/config/tracing-settings.ts"
import { openTracing } from "../src/platform/tracing/open-tracing.ts"
import type { Tracing } from "../src/platform/tracing/tracing.ts"
import { type Receiver, startReceiver } from "./receiver.ts"

export interface CollectedSpan {
  /** The `service.name` of its process. */
  process: string
  name: string
  traceId: string
  spanId: string
  parentSpanId?: string
  kind: number
  attributes: Record<string, string | number | boolean>
  /** Of the spans that it links. */
  links: string[]
  isError: boolean
  startTimeUnixNano: string
  endTimeUnixNano: string
}

export interface Collector extends Receiver {
  settings: TracingSettings
  /** Tracing of a process with this name, for the collector. */
  open(name: string, more?: Partial<TracingSettings>): Promise<Tracing>
  spans(): CollectedSpan[]
  /** A trace as text, two spaces for each level: what `label` says of each span, in the order in which they began. */
  tree(traceId: string, label: (span: CollectedSpan) => string): string
}

interface Value {
  stringValue?: string
  intValue?: number | string
  doubleValue?: number
  boolValue?: boolean
}
type Pairs = { key: string; value: Value }[]

const attributesOf = (pairs: Pairs = []) =>
  Object.fromEntries(
    pairs.map(({ key, value: { stringValue, intValue, doubleValue, boolValue } }) => [
      key,
      stringValue ?? (intValue === undefined ? (doubleValue ?? boolValue ?? "") : Number(intValue)),
    ]),
  )

/** Starts one that answers as the test says. */
export async function startCollector(...how: Parameters<typeof startReceiver>): Promise<Collector> {
  const receiver = await startReceiver(...how)
  const settings: TracingSettings = {
    endpoint: `http://127.0.0.1:${receiver.port}`,
    protocol: "http/json",
    headers: [],
    serviceName: undefined,
    resourceAttributes: [],
    ratio: 1,
  }
  const spans = () => receiver.received.flatMap(({ body }) => decode(body))
  return {
    ...receiver,
    settings,
    open: async (name, more) => {
      const tracing = await openTracing({ ...settings, serviceName: name, ...more }, () => {})
      if (!tracing) throw new Error("there is no tracing")
      return tracing
    },
    spans,
    tree: (traceId, label) => {
      const ours = spans()
        .filter(span => span.traceId === traceId)
        .sort((a, b) => (BigInt(a.startTimeUnixNano) < BigInt(b.startTimeUnixNano) ? -1 : 1))
      const known = new Set(ours.map(({ spanId }) => spanId))
      const under = (parent: string | undefined, indent: string): string[] =>
        ours
          .filter(({ parentSpanId }) => (known.has(parentSpanId ?? "") ? parentSpanId : undefined) === parent)
          .flatMap(span => [`${indent}${label(span)}`, ...under(span.spanId, `${indent}  `)])
      return under(undefined, "").join("\n")
    },
  }
}

/** The spans of a request. */
function decode(body: string): CollectedSpan[] {
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  const { resourceSpans } = JSON.parse(body) as any
  return resourceSpans.flatMap(({ resource, scopeSpans }: { resource: { attributes: Pairs }; scopeSpans: [] }) =>
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    scopeSpans.flatMap(({ spans }: any) =>
      // biome-ignore lint/suspicious/noExplicitAny: as above.
      spans.map((span: any) => ({
        ...span,
        process: attributesOf(resource.attributes)["service.name"],
        attributes: attributesOf(span.attributes),
        links: (span.links ?? []).map((link: { traceId: string; spanId: string }) => `${link.traceId}-${link.spanId}`),
        isError: span.status?.code === 2,
      })),
    ),
  )
}
