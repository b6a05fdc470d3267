/** Logs: pino, JSON lines, with every secret redacted before it is written. */
import { type DestinationStream, type Logger, pino } from "pino"

/** Paths whose values never reach a log, whatever object contains them. */
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
  // The values of a statement that failed, which PGlite adds to its errors.
  "params",
]

/**
 * A logger at this level. Requests are logged by method, route and status alone, so that no header, query or body is
 * included by default; the redaction is the second line of defence. `fieldsNow` are added to each line.
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
 * The same log for the lines of requests, whose fields are named one by one and hold no object: searching each of them for secrets
 * was a tenth of what `verify` took (script/bench verify), and writing each by itself a twentieth. Its level is the most talkative:
 * ask the log's own before each line.
 */
export function requestLog(log: Logger): Logger {
  const lines = log.child({}, { level: "trace", redact: [] }) as Logger & Record<symbol, DestinationStream>
  const stream = lines[pino.symbols.streamSym]
  if (stream) lines[pino.symbols.streamSym] = together(stream)
  return lines
}

/** What is to be written before the process ends. */
const unwritten = new Set<() => void>()
process.on("exit", () => {
  for (const flush of unwritten) flush()
})

/** Writes what is logged in one turn of the event loop at its end, in one piece; a process that ends by itself writes all. */
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

/** Switches a running process to `debug`, and back to the `usual` level at the next call; logs which it has now. */
export function toggleDebug(log: Logger, usual: string): void {
  log.level = log.level === "debug" ? usual : "debug"
  log.info({ logLevel: log.level }, "the log level has changed")
}
