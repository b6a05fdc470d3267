/**
 * A database address with several hosts (`postgres://user@one,two:5433/sluice?target_session_attrs=read-write`, as in libpq): one of them
 * takes writes, and another one when that is lost. `pg` knows addresses with one host.
 */
import pg from "pg"

/** The addresses of the single hosts in their order; an address with one host, or of another form, alone. */
export function addressesOf(url: string): [string, ...string[]] {
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)(\/[^?#]*)?(\?[^#]*)?$/.exec(url)
  if (!parts) return [url]
  const [, start = "", hosts = "", path = "", query = ""] = parts
  const others = new URLSearchParams(query)
  // What is asked for in any case.
  others.delete("target_session_attrs")
  const rest = path + (others.size > 0 ? `?${others}` : "")
  return hosts.split(",").map(host => `${start}${host}${rest}`) as [string, ...string[]]
}

/** Which of several hosts is tried first. */
export interface Hosts {
  readonly count: number
  /** The address with all of them. */
  readonly name: string
  current(): string
  /** Another one is tried first from now on, unless that was decided already. */
  leave(address: string): void
}

/** The hosts of an address, the first one first. */
export function hostsOf(url: string): Hosts {
  const addresses = addressesOf(url)
  let at = 0
  const current = () => addresses[at % addresses.length] ?? url
  return {
    count: addresses.length,
    name: url,
    current,
    leave: address => {
      if (address === current()) at++
    },
  }
}

/** The timeline that a primary writes, as an expression of SQL. */
export const TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"

/** A host that answers and must not be written to: a replica, a primary that was made one, or one that another has replaced. */
class NotPrimary extends Error {}

/** What a primary says of itself: a replica that is promoted begins a timeline, and the `cluster` of both is the same. */
interface Primary {
  cluster: string
  timeline: number
}

/** The newest primary that this process has seen of each database, by its address, and the connections to it. */
const databases = new Map<string, Primary & { clients: Set<pg.Client> }>()

/**
 * Takes in a connection to a primary; throws where another was promoted after that. Where this is the one that was promoted, those to the
 * earlier one are ended, whatever they are doing: otherwise they would go on writing to it for as long as it lives. Another cluster is a new
 * one, as after `pg_upgrade`, whose timelines begin again.
 */
export function admit(name: string, client: pg.Client, { cluster, timeline }: Primary): void {
  const known = databases.get(name)
  const isSame = known?.cluster === cluster
  if (isSame && timeline < known.timeline)
    throw new NotPrimary(
      "this host was the primary before another one was promoted: stop it, or set it up as its replica",
    )
  const isKnown = isSame && timeline === known.timeline
  const clients = isKnown ? known.clients : new Set<pg.Client>()
  clients.add(client)
  client.once("end", () => clients.delete(client))
  if (isKnown) return
  databases.set(name, { cluster, timeline, clients })
  for (const earlier of known?.clients ?? []) {
    void earlier.end().catch(() => {})
    // A pool drops a connection that is idle only for an error.
    earlier.emit("error", new NotPrimary("another primary was found: this connection to the earlier one was ended"))
  }
}

const STATE = `select case when not pg_is_in_recovery() then ${TIMELINE} end as timeline,
  (select system_identifier::text from pg_control_system()) as cluster`

/**
 * A client of the host that is tried first, not connected yet. Where there are several, one that can't be reached or takes no
 * writes fails to connect, and the next client tries another.
 */
export function clientOf(hosts: Hosts, options: pg.ClientConfig): pg.Client {
  const address = hosts.current()
  const client = new pg.Client({ ...options, connectionString: address })
  if (hosts.count === 1) return client
  const connect = client.connect.bind(client)
  const connectToPrimary = async (): Promise<void> => {
    try {
      await connect()
      const { rows } = await client.query<{ timeline: number | null; cluster: string }>({
        text: STATE,
        query_timeout: options.connectionTimeoutMillis,
      } as pg.QueryConfig)
      const [{ timeline, cluster } = { timeline: null, cluster: "" }] = rows
      if (timeline === null) throw new NotPrimary("this host takes no writes")
      admit(hosts.name, client, { cluster, timeline })
    } catch (error) {
      hosts.leave(address)
      if (error instanceof NotPrimary) void client.end().catch(() => {})
      throw error
    }
  }
  client.connect = ((done?: (error: Error | null) => void) => {
    const connecting = connectToPrimary()
    if (!done) return connecting
    connecting.then(
      () => done(null),
      (error: Error) => done(error),
    )
  }) as typeof client.connect
  return client
}

/** A connected client, from whichever host takes writes; throws the last host's error where none does. */
export async function connectClient(url: string, options: pg.ClientConfig): Promise<pg.Client> {
  const hosts = hostsOf(url)
  for (let tried = 1; ; tried++) {
    const client = clientOf(hosts, options)
    client.on("error", () => {})
    try {
      await client.connect()
      return client
    } catch (error) {
      if (tried === hosts.count) throw error
    }
  }
}
