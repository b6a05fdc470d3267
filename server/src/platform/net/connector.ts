/**
 * Connections to addresses that strangers choose. An address is checked when it can no longer change. IP literals are
 * checked before the connection, because they are never looked up. Every address of a name is checked when it is
 * resolved for this connection. Finally, the socket's own peer is checked. Checking the name in advance would not help,
 * because it may resolve differently for the connection (DNS rebinding).
 */
// I/O: resolves names and opens sockets, within the given limits.
import { promises as dns, type LookupAddress } from "node:dns"
import { isIP, type LookupFunction, type Socket } from "node:net"
import { buildConnector } from "undici"
import { nameNotPublic, notPublic } from "./public-address.ts"

/** The addresses of a name; rejects if there are none. */
export type Resolve = (name: string) => Promise<string[]>

const DNS_TIMEOUT_MS = 4_000
const DNS_TRIES = 2
/** Far more than the part of an answer that is read, including headers. */
const WEBHOOK_ANSWER_BYTES = 512 * 1024

/**
 * Resolves names with c-ares. `dns.lookup` occupies one of the process's four threads until it ends, so four endpoints
 * with slow name servers would delay all others. c-ares does not use the hosts file or the system's search domains.
 * These are used only if the operator has allowed private ranges.
 */
export function openResolver({ systemToo, servers }: { systemToo: boolean; servers?: string[] }): Resolve {
  const resolver = new dns.Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES })
  if (servers) resolver.setServers(servers)
  return async name => {
    // RFC 6761: this name never leaves the machine. Most receivers under development use this name.
    if (name === "localhost" || name.endsWith(".localhost")) return ["127.0.0.1", "::1"]
    const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
    const found = answers.flatMap(answer => (answer.status === "fulfilled" ? answer.value : []))
    if (found.length > 0) return found
    if (systemToo) {
      const known = await dns.lookup(name, { all: true }).catch(() => [])
      if (known.length > 0) return known.map(({ address }) => address)
    }
    throw dnsError(name, answers[0].status === "rejected" ? String(answers[0].reason.code) : "ENOTFOUND")
  }
}

const dnsError = (name: string, code: string): Error =>
  Object.assign(
    new Error(
      /^E?(NOTFOUND|NODATA)$/.test(code)
        ? `the name ${name} has no address (DNS says ${code})`
        : `the name ${name} can't be resolved (DNS says ${code})`,
    ),
    { code: "DNS" },
  )

const refused = (fault: string): Error => Object.assign(new Error(`it ${fault}`), { code: "REFUSED" })

/**
 * Closes the connection when more than this many bytes arrive after the last byte that was sent. A receiver can send
 * unlimited bytes outside the body that we read: informational answers (103) and chunk extensions.
 */
function boundAnswers(socket: Socket, maxBytes: number): void {
  let sent = socket.bytesWritten
  let read = 0
  let readBefore = 0
  // This listener is added next to the one that reads, and consumes no bytes.
  socket.on("readable", () => {
    if (socket.bytesWritten !== sent) {
      sent = socket.bytesWritten
      readBefore = read
    }
    read = socket.bytesRead
    if (read - readBefore > maxBytes)
      socket.destroy(Object.assign(new Error("its answer is too large"), { code: "TOO_LARGE" }))
  })
}

/**
 * The connector for undici. The connector connects only where `allows` permits it, within `timeoutMs`. `ca` replaces
 * the system's root certificates; `connected` is called with the address that a host resolved to.
 */
export function guardedConnector(options: {
  allows: (address: string) => boolean
  resolve: Resolve
  timeoutMs: number
  ca?: string | undefined
  connected?: (host: string, address: string) => void
  /** The maximum number of bytes received after the last byte that was sent; 512 KB by default. */
  answerBytes?: number
}): buildConnector.connector {
  const { allows, resolve, timeoutMs, ca, connected, answerBytes = WEBHOOK_ANSWER_BYTES } = options
  const lookup: LookupFunction = (name, { all, family }, callback) => {
    resolve(name).then(
      addresses => {
        const bad = addresses.find(address => !allows(address))
        // A non-public address among public ones is how DNS rebinding works.
        if (bad !== undefined) return callback(refused(nameNotPublic), "")
        const found = addresses.map((address): LookupAddress => ({ address, family: isIP(address) }))
        const [first] = found.filter(each => !family || each.family === family)
        if (all) callback(null, found)
        else if (first) callback(null, first.address, first.family)
        else callback(dnsError(name, "ENOTFOUND"), "")
      },
      (error: Error) => callback(error, ""),
    )
  }
  // HTTP/2 would put all deliveries to an origin on one connection, where a slow one delays the others.
  const connect = buildConnector({ lookup, timeout: timeoutMs, allowH2: false, ...(ca ? { ca } : {}) })
  return (target, callback) => {
    const literal = target.hostname.replace(/^\[|\]$/g, "")
    if (isIP(literal) !== 0 && !allows(literal)) return callback(refused(notPublic(literal)), null)
    connect({ ...target, hostname: literal }, (...[error, socket]: [Error | null, Socket | null]) => {
      if (error || !socket) return callback(error ?? new Error("no socket"), null)
      const peer = socket.remoteAddress ?? ""
      if (allows(peer)) {
        connected?.(target.hostname, peer)
        if (answerBytes !== Number.POSITIVE_INFINITY) boundAnswers(socket, answerBytes)
        return callback(null, socket)
      }
      socket.destroy()
      callback(refused(nameNotPublic), null)
    })
  }
}
