/**
 * A door in front of Postgres that writes down every statement that a process has it execute, as the protocol carries them.
 * The tests of what a request costs the database count here, and not in the code that they test.
 */
import { createServer, type Socket, connect as tcpConnect } from "node:net"

/** One statement that was executed. */
export interface Executed {
  text: string
  /** Whether its text came with it; a statement with a name is parsed once on each connection. */
  parsed: boolean
}

export interface StatementDoor {
  /** The address of the database behind it. */
  url: string
  /**
   * Returns what was executed while `work` ran, in order: also savepoints, locks and NOTIFY, but not what begins or ends a
   * transaction.
   */
  during(work: () => Promise<unknown>): Promise<Executed[]>
  stop(): Promise<void>
}

/**
 * What begins or ends a transaction, what each process sends all the time to hear whether it is still connected, and the log of requests,
 * which is written beside them.
 */
const UNCOUNTED =
  /^(\/\* named: write_requests \*\/.*|begin|commit|rollback|select pg_notify\(\$1, \$2\)|set jit = off;.*|listen .*)$/s

/** Opens a door to the database at `target` on a free port of loopback. */
export async function openStatementDoor(target: string): Promise<StatementDoor> {
  const { hostname, port, pathname, username } = new URL(target)
  let seen: Executed[] = []
  const sockets = new Set<Socket>()
  const server = createServer(client => {
    const upstream = tcpConnect(Number(port), hostname)
    const read = readStatements(statement => UNCOUNTED.test(statement.text) || seen.push(statement))
    client.on("data", (bytes: Buffer) => read(bytes))
    client.pipe(upstream).pipe(client)
    for (const socket of [client, upstream]) {
      sockets.add(socket.setNoDelay())
      socket.on("error", () => {})
      socket.on("close", () => [client, upstream].map(each => each.destroy()))
    }
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const { port: own } = server.address() as { port: number }
  return {
    url: `postgres://${username}@127.0.0.1:${own}${pathname}`,
    during: async work => {
      seen = []
      await work()
      return seen
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

/** Reads the messages of one connection to the server, and reports each statement that is executed. */
function readStatements(executed: (statement: Executed) => void): (bytes: Buffer) => void {
  let rest = Buffer.alloc(0)
  let isStarted = false
  /** The texts of statements by their names; the unnamed one is the empty name. */
  const texts = new Map<string, string>()
  const parsed = new Set<string>()
  let bound = ""
  const take = (type: string, body: Buffer) => {
    const [first = "", second = ""] = body.toString("latin1").split("\0")
    if (type === "P") {
      texts.set(first, second)
      parsed.add(first)
    }
    if (type === "B") bound = second
    if (type === "Q") executed({ text: first, parsed: true })
    if (type === "E") executed({ text: texts.get(bound) ?? "", parsed: parsed.delete(bound) })
  }
  return bytes => {
    rest = Buffer.concat([rest, bytes])
    for (;;) {
      // The first message has no type.
      const head = isStarted ? 1 : 0
      if (rest.length < head + 4) return
      const end = head + rest.readInt32BE(head)
      if (rest.length < end) return
      if (isStarted) take(rest.toString("latin1", 0, 1), rest.subarray(5, end))
      isStarted = true
      rest = rest.subarray(end)
    }
  }
}
