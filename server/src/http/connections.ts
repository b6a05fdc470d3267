/**
 * Limits what callers can make the HTTP server hold in memory. A connection is served one request at a time, and only a
 * few more may be pipelined. Requests and answers each hold a fixed number of bytes in total, whoever the callers are
 * and however many connections there are. Above it a connection is closed: for requests the one that holds most, for
 * answers the one whose caller has read nothing for longest.
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
  /** Open connections. One more closes the connection that has been idle for longest. */
  connections: number
  /** Requests of one connection that wait for the answer before them. One more closes it. */
  pipelined: number
  /** Bytes of all answers. More closes the connection that has read nothing for longest. */
  answerBytes: number
  /** Bytes of all requests: those that wait, and bodies still being received. More closes the largest holder. */
  requestBytes: number
  /** Bytes of the largest body. */
  bodyBytes: number
  /** Milliseconds in which a caller reads nothing of its answer, or sends nothing, before its connection is closed. */
  stalledMs: number
  /** Milliseconds that connections have to finish once the server closes. */
  closingMs: number
}

/**
 * An idle connection holds about 10 KB. Clients that pipeline at all send few requests ahead (undici ten, by a
 * setting). 64 MB of answers are some thirty thousand of the usual size, or sixty downloads at once. 32 MB of requests
 * are 8 KB for each connection: above that, one connection must hold more than any usual request does. Two minutes,
 * because a socket counts as read only when its buffer of 4 MB has emptied by a third: with 20 seconds, a steady reader
 * at 20 KB/s was cut off (measured).
 */
export const defaultBounds: Bounds = {
  connections: 4_000,
  pipelined: 10,
  answerBytes: 64 * 1024 * 1024,
  requestBytes: 32 * 1024 * 1024,
  bodyBytes: 256 * 1024,
  stalledMs: 120_000,
  closingMs: 5_000,
}

/**
 * How long a request may take to arrive. Fastify's default is unlimited, so that an endless body would hold its memory
 * and its connection. In a minute the largest body arrives over a line of 35 kbit/s. Node gives the headers alone a
 * minute, too.
 */
export const REQUEST_TIMEOUT_MS = 60_000
/** How long a connection may be idle between two requests, in milliseconds; longer than the 60 s of common proxies. */
export const KEEP_ALIVE_MS = 72_000
/** Why a connection was closed: a label of a metric. */
export type DropReason = "pipelined" | "unread" | "unsent" | "stalled" | "too_many" | "stopping"

/**
 * What one waiting request may hold: its headers (16 KB at most), the first part of its body, and the objects around
 * them.
 */
const WAITING_BYTES = 24 * 1024
/**
 * What a body of unknown length counts as until it has arrived: the usual ones are small, and the largest has four
 * times as much.
 */
const CHUNKED_BYTES = 64 * 1024

export interface Connections {
  /** A server for `listener` within the limits; for Fastify's `serverFactory`. */
  open(listener: RequestListener, options: ServerOptions & { keepAliveTimeout: number }): Server
  /** Counts `bytes` as held for this answer until it is sent or its connection is closed. */
  hold(response: ServerResponse, bytes: number): void
  /** Gives open connections `closingMs` to finish, then closes them. Call it when the server begins to close. */
  close(): void
}

interface Connection {
  /** The request that is being answered. */
  running: ServerResponse | undefined
  waiting: [IncomingMessage, ServerResponse][]
}

/** Bytes that connections hold, in the order in which they began to, or last read. */
interface Holders {
  bytes: Map<Socket, number>
  total: number
}
const holdersOf = (): Holders => ({ bytes: new Map(), total: 0 })

/** Looks at each connection: some 20 µs for 4,000, and only above the limit. */
function largestOf({ bytes }: Holders): Socket | undefined {
  let largest: Socket | undefined
  let most = 0
  for (const [socket, held] of bytes)
    if (held > most) {
      largest = socket
      most = held
    }
  return largest
}

/** Limited connections; `dropped` is called for each connection that a limit closed, with its peer's address. */
export function boundedConnections(
  dropped: (reason: DropReason, peer: string | undefined) => void,
  bounds: Bounds = defaultBounds,
): Connections {
  const connections = new Map<Socket, Connection>()
  /** In the order in which they became idle. */
  const idle = new Set<Socket>()
  /** Those that hold answers, in the order in which their callers last read. */
  const answers = holdersOf()
  const requests = holdersOf()

  return {
    open: (listener, options) => {
      const server = createServer(options, (request, response) => enqueue(listener, request, response))
      server.keepAliveTimeout = options.keepAliveTimeout
      server.on("connection", opened)
      // Any `Expect` except 100-continue may be ignored (RFC 9110, 10.1.1); Node would answer an empty 417.
      server.on("checkExpectation", (request, response) => enqueue(listener, request, response))
      // Node checks whether bytes are being sent before it calls this.
      server.setTimeout(bounds.stalledMs, timedOut)
      return server
    },
    hold: (response, bytes) => {
      const { socket } = response
      const connection = socket && connections.get(socket)
      if (connection?.running === response) holdAnswer(socket as Socket, bytes)
    },
    close: () => {
      const closeAll = () => {
        for (const socket of connections.keys()) drop(socket, "stopping")
      }
      setTimeout(closeAll, bounds.closingMs).unref()
    },
  }

  function opened(socket: Socket): void {
    connections.set(socket, { running: undefined, waiting: [] })
    idle.add(socket)
    socket.once("close", () => forget(socket))
    socket.on("drain", () => moveToEnd(answers, socket))
    if (connections.size <= bounds.connections) return
    const [longestIdle] = idle
    const [longestUnread] = answers.bytes.keys()
    const other = longestIdle === socket ? (longestUnread ?? largestOf(requests)) : longestIdle
    drop(other ?? socket, "too_many")
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
      holdRequest(socket, WAITING_BYTES)
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
      // Closed, or its last answer said `Connection: close`.
      if (!connections.has(socket) || !socket.writable) return
      letGo(answers, socket)
      letGo(requests, socket)
      const next = connection.waiting.shift()
      if (!next) idle.add(socket)
      else {
        holdRequest(socket, connection.waiting.length * WAITING_BYTES)
        run(listener, connection, ...next)
      }
    })
    const bodyBytes = bodyBytesOf(request)
    request.once("end", () => {
      if (connection.running === response) add(requests, socket, -bodyBytes)
    })
    holdRequest(socket, bodyBytes)
    // Unless its own body is what no longer fits.
    if (connections.has(socket)) listener(request, response)
  }

  /** Counts the full announced size of the body, so that a slow sender is counted before it has sent. */
  function bodyBytesOf({ headers }: IncomingMessage): number {
    const isChunked = headers["transfer-encoding"] !== undefined
    return Math.min(isChunked ? CHUNKED_BYTES : Number(headers["content-length"] ?? 0), bounds.bodyBytes)
  }

  function holdAnswer(socket: Socket, bytes: number): void {
    // One that is already in the order keeps its place: asking for more is not reading.
    add(answers, socket, bytes)
    for (const longest of answers.bytes.keys()) {
      if (answers.total <= bounds.answerBytes) return
      drop(longest, "unread")
    }
  }

  function holdRequest(socket: Socket, bytes: number): void {
    add(requests, socket, bytes)
    while (requests.total > bounds.requestBytes) drop(largestOf(requests) ?? socket, "unsent")
  }

  function add(holders: Holders, socket: Socket, bytes: number): void {
    if (bytes === 0) return
    if (!connections.has(socket)) return
    holders.bytes.set(socket, (holders.bytes.get(socket) ?? 0) + bytes)
    holders.total += bytes
  }

  function letGo(holders: Holders, socket: Socket): void {
    holders.total -= holders.bytes.get(socket) ?? 0
    holders.bytes.delete(socket)
  }

  function moveToEnd({ bytes }: Holders, socket: Socket): void {
    const held = bytes.get(socket)
    if (held === undefined) return
    bytes.delete(socket)
    bytes.set(socket, held)
  }

  function timedOut(socket: Socket): void {
    const running = connections.get(socket)?.running
    // Where nothing waits to be read, the server itself is still working: on a long-poll, or on the next part of a
    // download.
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
    letGo(answers, socket)
    letGo(requests, socket)
    connection.waiting = []
    connections.delete(socket)
    idle.delete(socket)
  }
}
