/** Requests that fail before they can be parsed: not HTTP, endless headers, never finished, or for a tunnel. */
import { randomUUID } from "node:crypto"
import type { Socket } from "node:net"
import { type ErrorCode, errorTable } from "../errors.ts"

/** Messages for Node's codes of such errors, and one of ours. All other codes mean that the bytes are not HTTP. */
const words: Record<string, string> = {
  HPE_HEADER_OVERFLOW: "The URL and the headers are too large: at most 16 KB are allowed.",
  ERR_HTTP_REQUEST_TIMEOUT: "The request did not arrive completely in time. Send it again.",
  CONNECT: "This server is not a proxy and opens no tunnel.",
}

/**
 * Answers in the same form as every other error, and closes the connection, because the bytes that follow can't be
 * parsed.
 */
export function refuseBroken(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy()
    return
  }
  const code: ErrorCode = "VALIDATION_ERROR"
  const { status, message } = errorTable[code]
  const details = [{ path: "", message: words[error.code ?? ""] ?? "The request is not valid HTTP." }]
  const requestId = randomUUID()
  const body = JSON.stringify({ error: code, message, requestId, details })
  const head = [
    `HTTP/1.1 ${status} Bad Request`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    "Connection: close",
  ]
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`)
}
