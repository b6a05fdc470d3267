/**
 * Database addresses with several hosts (`postgres://user@one,two:5433/sluice?target_session_attrs=read-write`, as in
 * libpq). One of the hosts accepts writes, and if it is lost, another one takes over. `pg` only knows addresses with
 * one host.
 */
import pg from "pg"

/**
 * Returns the addresses of the single hosts in their order. An address with one host, or of another form, is returned
 * alone.
 */
export function addressesOf(url: string): [string, ...string[]] {
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)(\/[^?#]*)?(\?[^#]*)?$/.exec(url)
  if (!parts) return [url]
  const [, start = "", hosts = "", path = "", query = ""] = parts
  const others = new URLSearchParams(query)
  // Every connection must accept writes in any case.
  others.delete("target_session_attrs")
  const rest = path + (others.size > 0 ? `?${others}` : "")
  return hosts.split(",").map(host => `${start}${host}${rest}`) as [string, ...string[]]
}

/** Decides which of several hosts is tried first. */
export interface Hosts {
  readonly count: number
  /** The address with all the hosts. */
  readonly name: string
  current(): string
  /** Tries another host first from now on, unless that has changed already. */
  leave(address: string): void
}

/** Returns the hosts of an address; the first one is tried first. */
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

/** SQL: the timeline that a primary writes. */
export const TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"

/**
 * A host that responds but must not be written to: a replica, a primary that became one, or a primary that another has
 * replaced.
 */
export class NotPrimary extends Error {}

/** A primary's identity: a promoted replica starts a new timeline, but both have the same `cluster`. */
interface Primary {
  cluster: string
  timeline: number
}

/**
 * The newest primary of each database that this process has seen, by the database's address, with the connections to
 * it.
 */
const databases = new Map<string, Primary & { clients: Set<pg.Client> }>()

/**
 * Admits a connection to a primary; throws if another host was promoted after it. If this host is the newly promoted
 * one, connections to the earlier primary are ended, even those in use. Otherwise, those connections would keep writing
 * to the earlier primary. Another cluster counts as new, for example after `pg_upgrade`, because its timelines start
 * again.
 */
export function admit(name: string, client: pg.Client, { cluster, timeline }: Primary): void {
  const known = databases.get(name)
  const isSame = known?.cluster === cluster
  if (isSame && timeline < known.timeline)
    throw new NotPrimary(
      "this host was the primary until another host was promoted: stop it, or set it up as a replica of the new primary",
    )
  const isKnown = isSame && timeline === known.timeline
  const clients = isKnown ? known.clients : new Set<pg.Client>()
  clients.add(client)
  client.once("end", () => clients.delete(client))
  if (isKnown) return
  databases.set(name, { cluster, timeline, clients })
  for (const earlier of known?.clients ?? []) {
    void earlier.end().catch(() => {})
    // A pool drops an idle connection only after an error.
    earlier.emit(
      "error",
      new NotPrimary("another primary was found, so this connection to the earlier primary was closed"),
    )
  }
}

const STATE = `select case when not pg_is_in_recovery() then ${TIMELINE} end as timeline,
  (select system_identifier::text from pg_control_system()) as cluster`

/**
 * Returns an unconnected client of the host that is tried first. With several hosts, a client fails to connect if its
 * host can't be reached or accepts no writes. The next client then tries another host.
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

/** Returns a connected client of the first host that accepts writes; throws the last host's error if none does. */
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
