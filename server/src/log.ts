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
 * was a tenth of what `verify` took (script/bench verify). Its level is the most talkative: ask the log's own before each line.
 */
export const requestLog = (log: Logger): Logger => log.child({}, { level: "trace", redact: [] })

/** Switches a running process to `debug`, and back to the `usual` level at the next call; logs which it has now. */
export function toggleDebug(log: Logger, usual: string): void {
  log.level = log.level === "debug" ? usual : "debug"
  log.info({ logLevel: log.level }, "the log level has changed")
}
