/** Opens the tracing of a process. Without a collector it loads nothing. */
import type { TracingSettings } from "../config/tracing-settings.ts"
import type { Report } from "./export-spans.ts"
import type { Tracing } from "./tracing.ts"

/**
 * Opens tracing to the collector of these settings; undefined without settings. `report` is called when the collector
 * fails, and when it works again.
 */
export const openTracing = async (
  settings: TracingSettings | undefined,
  report: Report,
): Promise<Tracing | undefined> =>
  settings === undefined ? undefined : (await import("./otel.ts")).openTelemetry(settings, report)
