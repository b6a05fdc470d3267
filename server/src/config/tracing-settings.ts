/** The settings of OpenTelemetry, with its own names and formats, as far as this service uses them. */
import type { SettingReader } from "./setting-reader.ts"
import { httpUrl } from "./setting-values.ts"

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

/** Where traces go; undefined where no endpoint is set. */
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

/** An {@link httpUrl} without credentials, query or fragment: these would be lost. The fault repeats none of them. */
export function collectorUrl(value: string): string {
  const url = httpUrl(value)
  const { username, password, search, hash } = new URL(url)
  if (username || password || search || hash)
    throw new Error("must have no password, query or fragment; tokens belong in OTEL_EXPORTER_OTLP_HEADERS")
  return url
}

const PAIR = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*([\x21-\x7e]*)\s*$/

/**
 * Parses `key=value,key=value` with percent-encoded values (W3C Baggage). The fault never repeats a value, as headers
 * are secrets.
 */
export function pairs(value: string): [string, string][] {
  const parts = value.split(",").filter(part => part.trim() !== "")
  return parts.map(part => {
    const [, key, encoded] = PAIR.exec(part) ?? []
    const decoded = encoded === undefined ? undefined : decode(encoded)
    if (key === undefined || decoded === undefined)
      throw new Error("must be key=value pairs, comma-separated, with percent-encoded values")
    return [key, decoded]
  })
}

/** Undefined where the text can't be sent in a header. */
function decode(encoded: string): string | undefined {
  try {
    const text = decodeURIComponent(encoded)
    return /^[\x20-\x7e]*$/.test(text) ? text : undefined
  } catch {
    return undefined
  }
}

/** Parses a number from 0 to 1. */
export function ratio(value: string): number {
  const n = /^(0(\.\d{1,9})?|1(\.0{1,9})?)$/.test(value) ? Number.parseFloat(value) : Number.NaN
  if (Number.isNaN(n)) throw new Error("must be a number from 0 to 1, such as 0.1")
  return n
}
