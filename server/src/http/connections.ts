/**
 * What callers can make the HTTP server hold. A connection is served one request at a time; few more may be pipelined.
 * Answers that nobody reads hold a fixed number of bytes in all, whoever asked for them and however many connections
 * there are: above it the connection goes whose caller has read nothing for the longest time.
 */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from "node:http"
import type { Socket } from "node:net"

export interface Bounds {
  /** Open connections. One more closes the one that has been idle for the longest time. */
  connections: number
  /** Requests of one connection that wait for the answer before them. One more closes it. */
  pipelined: number
  /** Bytes of answers, and of requests that wait, in all. More closes the connection that has read nothing for longest. */
  heldBytes: number
  /** Milliseconds in which a caller reads nothing of its answer, or sends nothing, before its connection is closed. */
  stalledMs: number
  /** Milliseconds that connections have to finish once the server closes. */
  closingMs: number
}

/**
 * An idle connection holds about 10 KB. Clients that pipeline at all send few requests ahead (undici ten, by a setting).
 * 64 MB are some thirty thousand answers of the usual size, or a few hundred downloads at once.
 */
export const defaultBounds: Bounds = {
  connections: 4_000,
  pipelined: 10,
  heldBytes: 64 * 1024 * 1024,
  stalledMs: 20_000,
  closingMs: 5_000,
}

/** Why a connection was closed: a label of a metric. */
export type DropReason = "pipelined" | "unread" | "stalled" | "too_many" | "stopping"

/** What one waiting request may hold: its headers (16 KB at most), the first part of its body, and the objects around them. */
const WAITING_BYTES = 24 * 1024

export interface Connections {
  /** A server for `listener` within the bounds; for Fastify's `serverFactory`. */
  open(listener: RequestListener, options: ServerOptions & { keepAliveTimeout: number }): Server
  /** Counts `bytes` as held for this answer until it is sent or its connection is gone. */
  hold(response: ServerResponse, bytes: number): void
  /** Gives open connections `closingMs` to finish, then closes them. Call it when the server begins to close. */
  close(): void
}

interface Connection {
  /** The request that is being answered. */
  running: ServerResponse | undefined
  waiting: [IncomingMessage, ServerResponse][]
  heldBytes: number
}

/** Bounded connections; `dropped` is told of each connection that a bound closed, with its peer's address. */
export function boundedConnections(
  dropped: (reason: DropReason, peer: string | undefined) => void,
  bounds: Bounds = defaultBounds,
): Connections {
  const connections = new Map<Socket, Connection>()
  /** In the order in which they became idle. */
  const idle = new Set<Socket>()
  /** Those that hold bytes, in the order in which their callers last finished reading an answer. */
  const holders = new Set<Socket>()
  let heldBytes = 0

  return {
    open: (listener, options) => {
      const server = createServer(options, (request, response) => enqueue(listener, request, response))
      server.keepAliveTimeout = options.keepAliveTimeout
      server.on("connection", opened)
      // Any `Expect` but 100-continue may be ignored (RFC 9110, 10.1.1); Node would answer an empty 417.
      server.on("checkExpectation", (request, response) => enqueue(listener, request, response))
      // Node asks whether bytes are on their way before it calls this.
      server.setTimeout(bounds.stalledMs, timedOut)
      return server
    },
    hold: (response, bytes) => {
      const { socket } = response
      const connection = socket && connections.get(socket)
      if (connection?.running === response) hold(socket as Socket, connection, bytes)
    },
    close: () => {
      const closeAll = () => {
        for (const socket of connections.keys()) drop(socket, "stopping")
      }
      setTimeout(closeAll, bounds.closingMs).unref()
    },
  }

  function opened(socket: Socket): void {
    connections.set(socket, { running: undefined, waiting: [], heldBytes: 0 })
    idle.add(socket)
    socket.once("close", () => forget(socket))
    if (connections.size <= bounds.connections) return
    const [longestIdle] = idle
    const [longestUnread] = holders
    drop(longestIdle === socket ? (longestUnread ?? socket) : (longestIdle ?? socket), "too_many")
  }

  function enqueue(listener: RequestListener, request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request
    const connection = connections.get(socket)
    // Closed by us or by the caller; Node still parses what had arrived.
    if (!connection) return
    if (!connection.running) run(listener, connection, request, response)
    else if (connection.waiting.length >= bounds.pipelined) drop(socket, "pipelined")
    else {
      connection.waiting.push([request, response])
      hold(socket, connection, WAITING_BYTES)
    }
  }

  function run(
    listener: RequestListener,
    connection: Connection,
    request: IncomingMessage,
    response: ServerResponse,
  ): void {
    const { socket } = request
    connection.running = response
    idle.delete(socket)
    response.once("close", () => {
      connection.running = undefined
      // Gone, or its last answer said `Connection: close`.
      if (!connections.has(socket) || !socket.writable) return
      letGo(socket, connection)
      const next = connection.waiting.shift()
      if (!next) idle.add(socket)
      else {
        hold(socket, connection, connection.waiting.length * WAITING_BYTES)
        run(listener, connection, ...next)
      }
    })
    listener(request, response)
  }

  function hold(socket: Socket, connection: Connection, bytes: number): void {
    if (bytes === 0) return
    connection.heldBytes += bytes
    heldBytes += bytes
    // One that is there already keeps its place: asking for more is not reading.
    holders.add(socket)
    for (const longest of holders) {
      if (heldBytes <= bounds.heldBytes) return
      drop(longest, "unread")
    }
  }

  function letGo(socket: Socket, connection: Connection): void {
    heldBytes -= connection.heldBytes
    connection.heldBytes = 0
    holders.delete(socket)
  }

  function timedOut(socket: Socket): void {
    const running = connections.get(socket)?.running
    // Where nothing waits to be read, it is we who still work: on a long-poll, or on the next part of a download.
    if (running && socket.writableLength === 0) return
    if (running) drop(socket, "stalled")
    else socket.destroy()
  }

  function drop(socket: Socket, reason: DropReason): void {
    dropped(reason, socket.remoteAddress)
    forget(socket)
    socket.destroy()
  }

  function forget(socket: Socket): void {
    const connection = connections.get(socket)
    if (!connection) return
    letGo(socket, connection)
    connection.waiting = []
    connections.delete(socket)
    idle.delete(socket)
  }
}
