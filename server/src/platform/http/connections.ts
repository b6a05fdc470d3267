/**
 * Limits the memory that callers can make the HTTP server hold. A connection is served one request at a time, and only
 * a few more may be pipelined. All requests together, and all answers together, hold a fixed number of bytes, for any
 * number of callers and connections (`held-connections.ts`).
 */
import {
  createServer,
  IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from "node:http"
import type { Socket } from "node:net"
import { getHeapStatistics } from "node:v8"
import {
  type Bounds,
  type Connection,
  type Dropped,
  type HeldConnections,
  heldConnections,
} from "./held-connections.ts"
import { joinedParts } from "./joined-parts.ts"

/**
 * The bytes that a connection may hold outside any budget, with a wide margin. Node keeps headers as soon as they
 * arrive: 6 KB of the smallest headers are 80 KB of strings. Measured: 3,900 connections with such headers crashed a
 * process of 256 MB.
 */
const CONNECTION_BYTES = 256 * 1024
const MAX_CONNECTIONS = 4_000

/**
 * How many connections a process may hold, by the size to which its heap may grow. With `--max-old-space-size=256`, V8
 * may grow the heap to 352 MB, which gives 1,408 connections; a gigabyte or more gives 4,000.
 */
export function connectionsFor(heapBytes: number): number {
  return Math.min(MAX_CONNECTIONS, Math.floor(heapBytes / CONNECTION_BYTES))
}

/**
 * An idle connection holds about 10 KB. Clients that pipeline at all send few requests ahead (undici ten, if
 * configured). 64 MB of answers are about thirty thousand of the usual size, or sixty downloads at the same time. 32 MB
 * of requests are 8 KB for each connection: to exceed that, one connection must hold more than any usual request does.
 * The limit for stalled callers is two minutes, because a socket counts as read only when its 4 MB buffer has emptied
 * by a third. With 20 seconds, a steady reader at 20 KB/s was cut off (measured).
 */
export const defaultBounds: Bounds = {
  connections: connectionsFor(getHeapStatistics().heap_size_limit),
  pipelined: 10,
  answerBytes: 64 * 1024 * 1024,
  requestBytes: 32 * 1024 * 1024,
  bodyBytes: 256 * 1024,
  stalledMs: 120_000,
  closingMs: 5_000,
}

/**
 * How long a request may take to arrive. Fastify's default is unlimited, so an endless body would hold its memory and
 * its connection. In a minute the largest body arrives over a line of 35 kbit/s. Node also gives the headers alone a
 * minute.
 */
export const REQUEST_TIMEOUT_MS = 60_000
/** How long a connection may be idle between two requests, in milliseconds; longer than the 60 s of common proxies. */
export const KEEP_ALIVE_MS = 72_000
/**
 * The bytes that one waiting request may hold: its headers (16 KB at most), the first part of its body, and their
 * objects.
 */
const WAITING_BYTES = 24 * 1024
/**
 * The size counted for a body of unknown length until it has arrived. Most bodies are small, and the largest is four
 * times this size.
 */
const CHUNKED_BYTES = 64 * 1024
/** Parts of a body up to this size, in bytes, are joined with the next parts of the same read. */
const SMALL_PART_BYTES = 4 * 1024

export interface Connections {
  /** A server for `listener` within the limits; for Fastify's `serverFactory`. */
  open(
    listener: RequestListener,
    options: Omit<ServerOptions, "requireHostHeader"> & { keepAliveTimeout: number },
  ): Server
  /** Counts `bytes` as held for this answer until it is sent or its connection is closed. */
  hold(response: ServerResponse, bytes: number): void
  /**
   * Calls `end` when it is its turn: after the answers to the complete requests. `end` answers bytes that are not HTTP,
   * or a late request, and closes the connection. Until then nothing is read. If the bytes belong to a request whose
   * answer has started or was sent, the connection is closed immediately, because no request gets two answers.
   */
  endInTurn(socket: Socket, end: () => void): void
  /** Gives open connections `closingMs` to finish, then closes them. Call it when the server starts to close. */
  close(): void
}

/** Limited connections. `dropped` is called for each connection that a limit closed, with its peer's address. */
export function boundedConnections(dropped: Dropped, bounds: Bounds = defaultBounds): Connections {
  const held = heldConnections(bounds, dropped)
  const timedOut = (socket: Socket) => {
    const running = held.of(socket)?.running
    // If nothing waits to be read, the server itself is still working, on a long-poll or on the next part of a
    // download.
    if (running && socket.writableLength === 0) return
    if (running) held.drop(socket, "stalled")
    else socket.destroy()
  }
  return {
    open: (listener, options) => {
      const inTurn = oneAtATime(listener, held, bounds)
      const server = createServer(
        // Node itself would answer a request without a Host header, and nothing would count it. So the listener refuses
        // it instead.
        { ...options, requireHostHeader: false, IncomingMessage: JoinedRequest },
        inTurn,
      )
      server.keepAliveTimeout = options.keepAliveTimeout
      server.on("connection", held.opened)
      server.on("connect", ({ socket }: IncomingMessage) => refuseConnect(server, held, socket, timedOut))
      // Any `Expect` except 100-continue may be ignored (RFC 9110, 10.1.1); Node would answer with an empty 417.
      server.on("checkExpectation", inTurn)
      // Node checks whether bytes are being sent before it calls this.
      server.setTimeout(bounds.stalledMs, timedOut)
      return server
    },
    hold: (response, bytes) => {
      const { socket } = response
      if (socket && held.of(socket)?.running === response) held.holdAnswer(socket, bytes)
    },
    endInTurn: (socket, end) => {
      const connection = held.of(socket)
      const running = connection?.running
      if (!connection || !socket.writable) end()
      else if (!running) connection.unfinished?.complete === false ? socket.destroy() : end()
      else if (running.req.complete) endAfter(connection, socket, end)
      else if (running.headersSent) socket.destroy()
      else end()
    },
    close: () => {
      const closeAll = () => {
        for (const socket of held.all()) held.drop(socket, "stopping")
      }
      setTimeout(closeAll, bounds.closingMs).unref()
    },
  }
}

/**
 * Calls `end` after the requests that are complete now, and pauses the socket until then. Otherwise Node would keep
 * reading and refusing bytes for as long as they arrive. `endAfter` also resumes the socket for a body that is being
 * read, so it is called again later.
 */
function endAfter(connection: Connection, socket: Socket, end: () => void): void {
  connection.waiting = connection.waiting.filter(([request]) => request.complete)
  connection.end ??= () => {
    end()
    // The end of the caller's data is noticed only while the socket is read. Any other bytes end the connection.
    socket.resume()
  }
  socket.pause()
}

/**
 * Refuses a CONNECT like bytes that are not HTTP, after the answers before it. Without a listener Node destroys the
 * socket, and those answers with it. With a listener, Node detaches the socket and parses nothing more. The answers
 * that are still being sent then receive neither the socket's `drain` event nor its timeout.
 */
function refuseConnect(server: Server, held: HeldConnections, socket: Socket, timedOut: (socket: Socket) => void) {
  socket.on("drain", () => held.of(socket)?.running?.emit("drain"))
  socket.on("timeout", () => timedOut(socket))
  const error = Object.assign(new Error("CONNECT is not served"), { code: "CONNECT" })
  if (!server.emit("clientError", error, socket)) return void socket.destroy()
  socket.on("data", () => socket.destroy())
}

/**
 * A request whose body has few parts, however it was sent. Anyone may send 64 KB in chunks of one byte. Such a body
 * held 8 MB, and 500 such connections crashed a process of 256 MB.
 */
class JoinedRequest extends IncomingMessage {
  private parts = joinedParts(SMALL_PART_BYTES)
  private isScheduled = false

  override push(part: Uint8Array | null): boolean {
    if (part !== null && this.parts.add(part)) return this.joinSoon()
    const more = this.pushJoined()
    if (part === null || !this.parts.add(part)) return super.push(part)
    return this.joinSoon() && more
  }

  /**
   * Passes the parts on after everything that has arrived is parsed. With `nextTick`, this would run after each part.
   */
  private joinSoon(): true {
    if (!this.isScheduled)
      setImmediate(() => {
        this.isScheduled = false
        if (!this.pushJoined()) this.socket.pause()
      })
    this.isScheduled = true
    return true
  }

  /** Passes the joined parts on. Returns whether more may be read. */
  private pushJoined(): boolean {
    const part = this.parts.take()
    return part === undefined || this.destroyed || super.push(part)
  }
}

/** Calls `listener` with one request of each connection at a time; the next requests wait for their turn. */
function oneAtATime(listener: RequestListener, held: HeldConnections, bounds: Bounds): RequestListener {
  function run(connection: Connection, request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request
    connection.running = response
    connection.unfinished = undefined
    held.began(socket)
    response.once("close", () => {
      connection.running = undefined
      if (!request.complete) connection.unfinished = request
      // The connection was closed, or its last answer said `Connection: close`.
      if (!held.of(socket) || !socket.writable) return
      held.finished(socket)
      const next = connection.waiting.shift()
      if (!next) return connection.end?.()
      held.holdRequest(socket, connection.waiting.length * WAITING_BYTES)
      run(connection, ...next)
    })
    const bodyBytes = Math.min(announcedBytes(request), bounds.bodyBytes)
    request.once("end", () => {
      if (connection.unfinished === request) connection.unfinished = undefined
      if (connection.running === response) held.holdRequest(socket, -bodyBytes)
    })
    held.holdRequest(socket, bodyBytes)
    // Skipped if this request's own body exceeds the limit.
    if (held.of(socket)) listener(request, response)
  }

  return (request, response) => {
    const { socket } = request
    const connection = held.of(socket)
    // Either we or the caller closed the connection, and Node still parses the bytes that had arrived. Or the
    // connection is ending, and this request came too late.
    if (!connection || connection.end) return
    if (!connection.running) run(connection, request, response)
    else if (connection.waiting.length >= bounds.pipelined) held.drop(socket, "pipelined")
    else {
      connection.waiting.push([request, response])
      held.holdRequest(socket, WAITING_BYTES)
    }
  }
}

/** The announced size of the whole body, so that a slow sender is counted before it has sent everything. */
function announcedBytes({ headers }: IncomingMessage): number {
  return headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : CHUNKED_BYTES
}
