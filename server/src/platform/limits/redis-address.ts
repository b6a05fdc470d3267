/** The addresses of Redis that `REDIS_URL` accepts: one server, a primary that Sentinel watches, or a Cluster. */

interface RedisNode {
  host: string
  port: number
}

interface RedisLogin {
  username?: string
  password?: string
}

export interface RedisAddress {
  kind: "server" | "sentinel" | "cluster"
  isTls: boolean
  login: RedisLogin
  /** The server; or the sentinels; or some nodes of the cluster, which report the others. */
  nodes: [RedisNode, ...RedisNode[]]
  /** Always 0 on a cluster. */
  database: number
  /** The primary's name at the sentinels; empty without sentinels. */
  primaryName: string
  /** The login at the sentinels. */
  sentinelLogin: RedisLogin
}

const FAULT =
  "must be redis://HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/NAME or redis+cluster://HOST:PORT,HOST:PORT, or the same with rediss"

const PORTS = { server: 6379, sentinel: 26379, cluster: 6379 } as const

/**
 * Parses an address. Throws an Error that completes "REDIS_URL …" and never repeats the address, because it may contain
 * a password.
 */
export function parseRedisAddress(value: string): RedisAddress {
  const match = /^redis(s?):\/\/.|^redis(s?)\+(sentinel|cluster):\/\/./.exec(value)
  if (!match) throw new Error(FAULT)
  const kind = (match[3] ?? "server") as RedisAddress["kind"]
  const rest = value.slice(value.indexOf("://") + 3)
  const end = rest.search(/[/?]/)
  const authority = end === -1 ? rest : rest.slice(0, end)
  const at = authority.lastIndexOf("@")
  // `URL` does not support a list of hosts, so the other parts are parsed as parts of a URL with one host.
  const about = urlOf(`http://${at === -1 ? "" : authority.slice(0, at + 1)}host${end === -1 ? "" : rest.slice(end)}`)
  const [first, ...others] = authority
    .slice(at + 1)
    .split(",")
    .map(each => nodeOf(each, PORTS[kind]))
  const path = about.pathname.split("/").slice(1).map(decode)
  const primaryName = kind === "sentinel" ? (path.shift() ?? "") : ""
  const [database = "", ...more] = path
  const isDatabase = kind === "cluster" ? database === "" : /^\d{0,4}$/.test(database)
  if (!first || more.length > 0 || !isDatabase || (kind === "server" && others.length > 0)) throw new Error(FAULT)
  if (kind === "sentinel" && primaryName === "") throw new Error(FAULT)
  const { searchParams } = about
  return {
    kind,
    isTls: (match[1] ?? match[2]) === "s",
    login: loginOf(decode(about.username), decode(about.password)),
    nodes: [first, ...others],
    database: database === "" ? 0 : Number.parseInt(database, 10),
    primaryName,
    sentinelLogin: loginOf(searchParams.get("sentinelUsername") ?? "", searchParams.get("sentinelPassword") ?? ""),
  }
}

function urlOf(text: string): URL {
  if (!URL.canParse(text)) throw new Error(FAULT)
  return new URL(text)
}

function nodeOf(text: string, port: number): RedisNode {
  if (/[\s@]/.test(text) || text === "") throw new Error(FAULT)
  // The scheme must not be http: `URL` drops the default port of http.
  const url = urlOf(`redis://${text}`)
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? port : Number.parseInt(url.port, 10),
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Error(FAULT)
  }
}

const loginOf = (username: string, password: string): RedisLogin => ({
  ...(username === "" ? {} : { username }),
  ...(password === "" ? {} : { password }),
})
