/**
 * Connections to addresses that strangers name. An address is checked where it can't change any more: IP literals before
 * the connection (they never reach a lookup), every address of a name as it is resolved for this connection, and the
 * socket's own peer last. A check of the name beforehand would be undone by a name that resolves anew (DNS rebinding).
 */
import { promises as dns, type LookupAddress } from "node:dns"
import { isIP, type LookupFunction, type Socket } from "node:net"
import { buildConnector } from "undici"
import { nameNotPublic, notPublic } from "./webhook.ts"

/** The addresses of a name; rejects when there are none. */
export type Resolve = (name: string) => Promise<string[]>

const DNS_TIMEOUT_MS = 4_000
const DNS_TRIES = 2
/** Far more than is read of an answer's body, with its headers. */
const ANSWER_BYTES = 512 * 1024

/**
 * Resolves names by c-ares. `dns.lookup` occupies one of four threads of the process until it ends, so that four
 * endpoints with slow name servers would hold up all others. What c-ares doesn't see, the hosts file and the system's
 * search domains, is asked only where the operator has opened private ranges.
 */
export function openResolver({ systemToo, servers }: { systemToo: boolean; servers?: string[] }): Resolve {
  const resolver = new dns.Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES })
  if (servers) resolver.setServers(servers)
  return async name => {
    // RFC 6761: it never leaves the machine. Most receivers under development have this name.
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
 * Closes the connection when more than 512 KB arrive after the last byte that was sent. A receiver can send bytes that are
 * no part of the body that we read, as many as it likes: informational answers (103) and the extensions of chunks.
 */
function boundAnswers(socket: Socket): void {
  let sent = socket.bytesWritten
  let read = 0
  let readBefore = 0
  // Beside the listener that reads: no byte is taken here.
  socket.on("readable", () => {
    if (socket.bytesWritten !== sent) {
      sent = socket.bytesWritten
      readBefore = read
    }
    read = socket.bytesRead
    if (read - readBefore > ANSWER_BYTES)
      socket.destroy(Object.assign(new Error("its answer is too large"), { code: "TOO_LARGE" }))
  })
}

/**
 * What undici connects with: only where `allows` lets it, within `timeoutMs`. `ca` stands in for the system's roots;
 * `connected` hears where a host led.
 */
export function guardedConnector(options: {
  allows: (address: string) => boolean
  resolve: Resolve
  timeoutMs: number
  ca?: string | undefined
  connected?: (host: string, address: string) => void
}): buildConnector.connector {
  const { allows, resolve, timeoutMs, ca, connected } = options
  const lookup: LookupFunction = (name, { all, family }, callback) => {
    resolve(name).then(
      addresses => {
        const bad = addresses.find(address => !allows(address))
        // One that is not public among others is how a name is made to rebind.
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
  // HTTP/2 would put all deliveries to an origin on one connection, where a slow one holds up the others.
  const connect = buildConnector({ lookup, timeout: timeoutMs, allowH2: false, ...(ca ? { ca } : {}) })
  return (target, callback) => {
    const literal = target.hostname.replace(/^\[|\]$/g, "")
    if (isIP(literal) !== 0 && !allows(literal)) return callback(refused(notPublic(literal)), null)
    connect({ ...target, hostname: literal }, (...[error, socket]: [Error | null, Socket | null]) => {
      if (error || !socket) return callback(error ?? new Error("no socket"), null)
      const peer = socket.remoteAddress ?? ""
      if (allows(peer)) {
        connected?.(target.hostname, peer)
        boundAnswers(socket)
        return callback(null, socket)
      }
      socket.destroy()
      callback(refused(nameNotPublic), null)
    })
  }
}
