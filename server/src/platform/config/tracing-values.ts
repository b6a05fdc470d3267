/** Parses the values of OpenTelemetry's settings. Each parser throws a fault that repeats no secret. */
import { httpUrl } from "./setting-values.ts"

/**
 * An {@link httpUrl} without credentials, query or fragment, because these would be lost. The fault repeats none of
 * these parts.
 */
export function collectorUrl(value: string): string {
  const url = httpUrl(value)
  const { username, password, search, hash } = new URL(url)
  if (username || password || search || hash)
    throw new Error("must have no password, query or fragment; tokens belong in OTEL_EXPORTER_OTLP_HEADERS")
  return url
}

const PAIR = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*([\x21-\x7e]*)\s*$/

/**
 * Parses `key=value,key=value` with percent-encoded values (W3C Baggage). The fault never repeats a value, because
 * headers are secrets.
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

/** Undefined if the text can't be sent in a header. */
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
