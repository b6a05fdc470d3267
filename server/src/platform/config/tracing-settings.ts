/** The settings of OpenTelemetry that this service uses, with their original names and formats. */
import type { SettingReader } from "./setting-reader.ts"

export interface TracingSettings {
  /** Without a slash at the end; `/v1/traces` is added. */
  endpoint: string
  protocol: "http/protobuf" | "http/json"
  headers: [string, string][]
  serviceName: string | undefined
  resourceAttributes: [string, string][]
  /** The share of traces that is recorded, from 0 to 1. */
  ratio: number
}

/** The receiver of traces; undefined if no endpoint is set. */
export function tracingSettings({ read }: SettingReader): TracingSettings | undefined {
  const settings = {
    protocol: read("OTEL_EXPORTER_OTLP_PROTOCOL"),
    headers: read("OTEL_EXPORTER_OTLP_HEADERS"),
    serviceName: read("OTEL_SERVICE_NAME"),
    resourceAttributes: read("OTEL_RESOURCE_ATTRIBUTES"),
    ratio: read("OTEL_TRACES_SAMPLER_ARG"),
  }
  const endpoint = read("OTEL_EXPORTER_OTLP_ENDPOINT")
  return endpoint === undefined ? undefined : { endpoint, ...settings }
}
