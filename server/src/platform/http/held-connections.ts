/**
 * The open connections and what each holds in memory. Above each limit, one connection is closed. For requests, that is
 * the connection that holds most. For answers, it is the connection whose caller has read nothing for longest. For
 * connections, it is the connection that has been idle for longest.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

export interface Bounds {
  /** The maximum number of open connections. A further connection closes the one that has been idle for longest. */
  connections: number
  /**
   * The maximum number of requests of one connection that wait for the answer before them. A further request closes the
   * connection.
   */
  pipelined: number
  /**
   * The maximum number of bytes of all answers. If there are more, the connection that has read nothing for longest is
   * closed.
   */
  answerBytes: number
  /**
   * The maximum number of bytes of all requests: those that wait, and bodies still being received. If there are more,
   * the connection that holds most is closed.
   */
  requestBytes: number
  /** The maximum number of bytes of one body. */
  bodyBytes: number
  /**
   * How long, in milliseconds, a caller may read nothing of its answer, or send nothing, before its connection is
   * closed.
   */
  stalledMs: number
  /** How long connections have to finish once the server closes; in milliseconds. */
  closingMs: number
}

/** Why a connection was closed: a label of a metric. */
type DropReason = "pipelined" | "unread" | "unsent" | "stalled" | "too_many" | "stopping"

/** Called for each connection that a limit closed, with its peer's address. */
export type Dropped = (reason: DropReason, peer: string | undefined) => void

export interface Connection {
  /** The request that is being answered; without one the connection is idle. */
  running: ServerResponse | undefined
  waiting: [IncomingMessage, ServerResponse][]
  /** The last request, if it was answered before all of it had arrived. */
  unfinished?: IncomingMessage | undefined
  /** Ends the connection once its requests are answered, because the bytes after them are not HTTP, or are late. */
  end?: () => void
}

export interface HeldConnections {
  /** Undefined for a connection that we or the caller closed. */
  of(socket: Socket): Connection | undefined
  all(): Iterable<Socket>
  /** Adds a new connection. It is idle. */
  opened(socket: Socket): void
  /** Marks the connection as answering a request. */
  began(socket: Socket): void
  /** Marks the connection's answer as complete: the connection is idle, and holds nothing. */
  finished(socket: Socket): void
  /** Counts bytes of an answer. */
  holdAnswer(socket: Socket, bytes: number): void
  /** Counts bytes of requests; a negative number gives bytes back. */
  holdRequest(socket: Socket, bytes: number): void
  /** Closes a connection and forgets what it held. */
  drop(socket: Socket, reason: DropReason): void
}

/** Connections that were closed to make room for new ones. */
const madeRoom = new WeakSet<Socket>()

/** Whether a connection was closed to make room for a new one, which is not its caller's fault. */
export const hasMadeRoom = (socket: Socket): boolean => madeRoom.has(socket)

/** Connections whose callers have paid for the answer that they wait for. */
const paid = new WeakSet<Socket>()

/** Prevents a connection from being closed to make room for a new one before its answer is complete. */
export const keepOpen = (socket: Socket): void => void paid.add(socket)

/**
 * The first connection that may be closed. Opening connections costs nothing, so many of them must not end an answer
 * that was paid for.
 */
const firstUnpaid = (sockets: Iterable<Socket>): Socket | undefined => {
  for (const socket of sockets) if (!paid.has(socket)) return socket
  return undefined
}

/** Creates the record, without connections. */
export function heldConnections(bounds: Bounds, dropped: Dropped): HeldConnections {
  const connections = new Map<Socket, Connection>()
  /** In the order in which they became idle. */
  const idle = new Set<Socket>()
  /** In the order in which their requests started. */
  const running = new Set<Socket>()
  /** Bytes of answers, in the order in which their callers last read. */
  const answers = heldBytes()
  const requests = heldBytes()

  function opened(socket: Socket): void {
    connections.set(socket, { running: undefined, waiting: [] })
    idle.add(socket)
    socket.once("close", () => forget(socket))
    socket.on("drain", () => answers.moveToEnd(socket))
    if (connections.size <= bounds.connections) return
    const [longestIdle] = idle
    // The longest-running request is that of a waiting page or a long-poll, whose client reconnects. 1,400 such
    // requests kept other callers out.
    const busy = () => firstUnpaid(answers.sockets()) ?? requests.largest() ?? firstUnpaid(running)
    drop((longestIdle === socket ? busy() : longestIdle) ?? socket, "too_many")
  }

  function began(socket: Socket): void {
    idle.delete(socket)
    running.add(socket)
  }

  function finished(socket: Socket): void {
    for (const held of [answers, requests]) held.letGo(socket)
    running.delete(socket)
    paid.delete(socket)
    idle.add(socket)
  }

  function holdAnswer(socket: Socket, bytes: number): void {
    if (connections.has(socket)) answers.add(socket, bytes)
    for (const longestUnread of answers.sockets()) {
      if (answers.total() <= bounds.answerBytes) return
      drop(longestUnread, "unread")
    }
  }

  function holdRequest(socket: Socket, bytes: number): void {
    if (connections.has(socket)) requests.add(socket, bytes)
    while (requests.total() > bounds.requestBytes) drop(requests.largest() ?? socket, "unsent")
  }

  function drop(socket: Socket, reason: DropReason): void {
    dropped(reason, socket.remoteAddress)
    if (reason === "too_many") madeRoom.add(socket)
    forget(socket)
    stopParsing(socket)
    socket.destroy()
  }

  function forget(socket: Socket): void {
    const connection = connections.get(socket)
    if (!connection) return
    for (const held of [answers, requests]) held.letGo(socket)
    connection.waiting = []
    connections.delete(socket)
    idle.delete(socket)
    running.delete(socket)
  }

  const of = (socket: Socket) => connections.get(socket)
  return { of, all: () => connections.keys(), opened, began, finished, holdAnswer, holdRequest, drop }
}

/**
 * Stops the parsing of bytes that have arrived. Node destroys a socket but goes on parsing: 64 KB that Node had already
 * read can contain about 1,200 requests. Node keeps these requests until the event loop closes the socket: 100 such
 * connections held 250 MB and crashed a process. Returning 2, as for a protocol upgrade, makes llhttp stop after the
 * headers. Node has no public way to do this; without `onIncoming` only the memory differs.
 */
function stopParsing(socket: Socket): void {
  const { parser } = socket as Socket & { parser?: { onIncoming?: unknown } | null }
  if (parser?.onIncoming) parser.onIncoming = () => 2
}

/** Bytes that connections hold, in the order in which the connections started to hold bytes, or last read. */
function heldBytes() {
  const held = new Map<Socket, number>()
  let total = 0
  return {
    total: () => total,
    sockets: () => held.keys(),
    /** A connection that is already in the order keeps its place, because asking for more is not reading. */
    add: (socket: Socket, bytes: number) => {
      if (bytes === 0) return
      held.set(socket, (held.get(socket) ?? 0) + bytes)
      total += bytes
    },
    letGo: (socket: Socket) => {
      total -= held.get(socket) ?? 0
      held.delete(socket)
    },
    moveToEnd: (socket: Socket) => {
      const bytes = held.get(socket)
      if (bytes === undefined) return
      held.delete(socket)
      held.set(socket, bytes)
    },
    /** Scans all connections: about 20 µs for 4,000, and only above the limit. */
    largest: () => {
      let largest: Socket | undefined
      let most = 0
      for (const [socket, bytes] of held)
        if (bytes > most) {
          largest = socket
          most = bytes
        }
      return largest
    },
  }
}
