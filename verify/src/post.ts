/**
 * One POST of JSON-RPC to an indexer or a storage node of 0G. Strangers choose the nodes, so an address is checked for the
 * very connection, a redirect is not followed, and an answer has a bound. `fetch` can do the last two alone.
 */
import { type LookupAddress, lookup } from "node:dns"
import { type IncomingMessage, request as overHttp } from "node:http"
import { request as overHttps } from "node:https"
import { isIP, type LookupFunction } from "node:net"

/** A segment in base64 with its proof takes 350 KB. */
const MAX_BYTES = 1_048_576
const TIMEOUT_MS = 30_000

/** A node that is not asked, because of its address. */
export class NotAllowed extends Error {}

/** What was answered, and by which IP address; undefined where the connection ended at once. */
interface Answered {
  result: unknown
  peer: string | undefined
}

/**
 * Asks one question, where `allows` admits each IP address of the host. Throws {@link NotAllowed} where it does not, and an
 * Error for a redirect, another failure, more than 1 MB or an answer that takes over 30 seconds.
 */
export async function post(
  url: string,
  method: string,
  params: readonly unknown[],
  allows: (address: string) => boolean,
): Promise<Answered> {
  const { protocol, hostname } = new URL(url)
  if (!["http:", "https:"].includes(protocol)) throw new Error(`${url} is no address of HTTP`)
  // A literal is never looked up.
  const literal = hostname.replace(/^\[|\]$/g, "")
  if (isIP(literal) !== 0 && !allows(literal)) throw new NotAllowed(url)
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })
  const options = {
    method: "POST",
    headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) },
    lookup: guarded(url, allows),
    // No connection of another question is used again.
    agent: false,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  } as const
  let peer: string | undefined
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const ask = protocol === "https:" ? overHttps : overHttp
    const asked = ask(url, options, resolve).on("error", reject)
    asked.once("socket", socket => {
      // Not at the answer: who answers can have the socket destroyed by then, and it has no address any more.
      socket.once("connect", () => {
        peer = socket.remoteAddress
      })
    })
    asked.end(body)
  })
  const { statusCode: status = 0 } = response
  if (status < 200 || status > 299) {
    response.destroy()
    throw new Error(`${url} answers ${status}${status > 299 && status < 400 ? ", and no redirect is followed" : ""}`)
  }
  const { result } = JSON.parse(await textOf(url, response)) as { result?: unknown }
  return { result, peer }
}

/** Looks a name up for a connection. One address that is not allowed among others refuses it: names are rebound so. */
const guarded =
  (url: string, allows: (address: string) => boolean): LookupFunction =>
  (name, options, callback) =>
    lookup(name, { ...options, all: true }, (error, found: LookupAddress[] = []) => {
      const [first] = found
      if (error || !first) return callback(error ?? new Error(`${name} has no address`), "")
      if (!found.every(({ address }) => allows(address))) return callback(new NotAllowed(url), "")
      if (options.all) callback(null, found)
      else callback(null, first.address, first.family)
    })

async function textOf(url: string, response: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  let size = 0
  for await (const part of response as AsyncIterable<Buffer>) {
    size += part.length
    // Leaving the loop closes the connection.
    if (size > MAX_BYTES) throw new Error(`${url} answers more than ${MAX_BYTES} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString("utf8")
}
