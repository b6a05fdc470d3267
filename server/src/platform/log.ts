/** Logs: pino, JSON lines, with every secret redacted before it is written. */
import { type DestinationStream, type Logger, pino } from "pino"

/** Fields whose values never reach a log, in any object. */
const secret = [
  "authorization",
  "x-api-key",
  "apiKey",
  "cookie",
  "accessToken",
  "privateKey",
  "secret",
  "password",
  "token",
  // The values of a failed statement, which PGlite adds to its errors.
  "params",
]

/**
 * Opens a logger at this level. Requests are logged only by method, route and status, so that no header, query or body
 * is included by default; the redaction is the second line of defence. `fieldsNow` are added to each line.
 */
export function openLog(
  level: string,
  destination?: DestinationStream,
  fieldsNow?: () => Record<string, string>,
): Logger {
  const options = {
    level,
    ...(fieldsNow ? { mixin: fieldsNow } : {}),
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: secret.flatMap(name => [`["${name}"]`, `*["${name}"]`, `*.*["${name}"]`]), censor: "[secret]" },
  }
  return destination ? pino(options, destination) : pino(options)
}

/**
 * The same log for the lines of requests. The fields of these lines are named one by one and contain no object.
 * Searching each line for secrets took a tenth of the time of `verify` (script/bench verify), and writing each line
 * separately a twentieth. This log is at the lowest level, so check the level of the original log before each line.
 */
export function requestLog(log: Logger): Logger {
  const lines = log.child({}, { level: "trace", redact: [] }) as Logger & Record<symbol, DestinationStream>
  const stream = lines[pino.symbols.streamSym]
  if (stream) lines[pino.symbols.streamSym] = together(stream)
  return lines
}

/** Flushes that must run before the process ends. */
const unwritten = new Set<() => void>()
process.on("exit", () => {
  for (const flush of unwritten) flush()
})

/**
 * Collects the lines of one turn of the event loop and writes them together. A process that exits normally writes all
 * of them.
 */
function together(stream: DestinationStream): DestinationStream {
  let lines = ""
  const flush = () => {
    if (!unwritten.delete(flush)) return
    stream.write(lines)
    lines = ""
  }
  return {
    write: line => {
      if (lines === "") {
        unwritten.add(flush)
        setImmediate(flush)
      }
      lines += line
    },
  }
}

/** Switches a running process to `debug`, and back to the `usual` level at the next call. Logs the new level. */
export function toggleDebug(log: Logger, usual: string): void {
  log.level = log.level === "debug" ? usual : "debug"
  log.info({ logLevel: log.level }, "the log level has changed")
}
