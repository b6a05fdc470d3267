/** A name server in a test, over UDP: it answers every name with what the test currently says. */
import { createSocket } from "node:dgram"
import { once } from "node:events"
import { isIP } from "node:net"

const A = 1
const AAAA = 28
const HEADER = 12

export interface NameServer {
  /** For `Resolver.setServers`. */
  address: string
  /** What names resolve to from now on, IPv4 and IPv6. */
  say(...addresses: string[]): void
  /** Questions that were asked. */
  asked(): number
  stop(): Promise<void>
}

export async function startNameServer(): Promise<NameServer> {
  const socket = createSocket("udp4")
  let addresses: string[] = []
  let asked = 0
  socket.on("message", (query, from) => {
    asked++
    let end = HEADER
    while (query[end]) end += (query[end] ?? 0) + 1
    const question = query.subarray(HEADER, end + 5)
    const type = query.readUInt16BE(end + 1)
    const found = addresses.filter(each => (isIP(each) === 4 ? A : AAAA) === type)
    const header = Buffer.from(query.subarray(0, HEADER))
    // A response, recursion available; one question, this many answers, nothing else.
    header.writeUInt16BE(0x8180, 2)
    for (const [i, n] of [1, found.length, 0, 0].entries()) header.writeUInt16BE(n, 4 + 2 * i)
    const answers = found.map(each => {
      const bytes = bytesOf(each)
      const fixed = Buffer.alloc(12)
      fixed.writeUInt16BE(0xc000 + HEADER, 0)
      fixed.writeUInt16BE(type, 2)
      fixed.writeUInt16BE(1, 4)
      fixed.writeUInt16BE(bytes.length, 10)
      return Buffer.concat([fixed, bytes])
    })
    socket.send(Buffer.concat([header, question, ...answers]), from.port, from.address)
  })
  socket.bind(0, "127.0.0.1")
  await once(socket, "listening")
  return {
    address: `127.0.0.1:${socket.address().port}`,
    say: (...next) => {
      addresses = next
    },
    asked: () => asked,
    stop: () => new Promise(resolve => socket.close(() => resolve())),
  }
}

/** The bytes of an address; of IPv6 only in its long form. */
const bytesOf = (address: string): Buffer =>
  isIP(address) === 4
    ? Buffer.from(address.split(".").map(part => Number.parseInt(part, 10)))
    : Buffer.from(
        address
          .split(":")
          .map(part => part.padStart(4, "0"))
          .join(""),
        "hex",
      )
