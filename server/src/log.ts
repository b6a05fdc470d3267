/** Logs: pino, JSON lines, with everything secret struck out before it is written. */
import { type DestinationStream, type Logger, pino } from "pino"

/** Paths whose values never reach a log, wherever the object that holds them is logged. */
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
 * A logger at this level. Requests are logged by method, route and status alone, so that no header, query or body gets in
 * by default; the redaction is the second line.
 */
export function openLog(level: string, destination?: DestinationStream): Logger {
  const options = {
    level,
    redact: { paths: secret.flatMap(name => [`["${name}"]`, `*["${name}"]`, `*.*["${name}"]`]), censor: "[secret]" },
  }
  return destination ? pino(options, destination) : pino(options)
}
