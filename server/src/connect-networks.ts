/**
 * Connects to the networks at startup: no network is served before its chain, token, factory and escrow have been
 * checked. If no endpoint answers, an API process still starts, with what the last start found. Such a process can
 * still serve the contents of the database, so a process that is replaced during an outage comes back.
 */
// I/O: queries the endpoints at startup, when there is no context yet.
import { setTimeout as sleep } from "node:timers/promises"
import type { Logger } from "pino"
import { checkFactory } from "./ledger/deposits/check-factory.ts"
import { checkNetwork, NetworkMismatch, servedAs } from "./platform/chain/check-network.ts"
import { findEscrow } from "./platform/chain/find-escrow.ts"
import type { Network, NetworkSettings } from "./platform/chain/networks.ts"
import { RpcError } from "./platform/chain/rpc.ts"
import type { Settings } from "./platform/config/settings.ts"
import { keepNetwork, keptNetwork } from "./platform/db/keep-network.ts"
import type { Db } from "./platform/db/open.ts"

const PATIENCE_MS = 60_000
const RETRY_MS = 2_000
/** The longest wait for a known network: a node that restarts usually answers within this time. */
const KNOWN_MS = 5_000
/** The pause between two checks of a network that is served unchecked. */
const UNCHECKED_MS = 15_000

/** How long, and how often, a step is retried. */
interface Patience {
  forMs: number
  everyMs: number
}

/** The values that the steps of connecting share. */
interface Connecting {
  db: Db
  settings: Settings
  log: Logger
  signal: AbortSignal
  /** Whether the process only serves requests. Any other process needs endpoints for its work. */
  isApi: boolean
  /** Ends the process, because a served network has changed. */
  fail: (error: Error) => void
  /** How long a known network is retried. */
  known?: Patience
  /** The pause between two checks of a network that is served unchecked. */
  uncheckedMs?: number
}

/**
 * Checks all networks of the settings. Throws an error with a sentence for the operator if a network is wrong, or if it
 * can't be checked and no earlier start knew it.
 */
export async function connectNetworks(connecting: Connecting): Promise<Network[]> {
  const networks: Network[] = []
  for (const wanted of connecting.settings.networks)
    networks.push(await (connecting.isApi ? connectKnown(connecting, wanted) : checkPatiently(connecting, wanted)))
  return networks
}

/**
 * Stores the findings of a start for the next start. Call it once it is certain that the database belongs to this
 * installation.
 */
export async function keepNetworks(db: Db, settings: Settings, networks: readonly Network[]): Promise<void> {
  for (const [n, network] of networks.entries()) {
    const wanted = settings.networks[n]
    if (wanted) await keepNetwork(db, wantedOf(settings, wanted), network)
  }
}

const wantedOf = ({ payoutWallet, relayWallet }: Settings, network: NetworkSettings) => ({
  network,
  payoutWallet,
  relayWallet,
})

async function connectKnown(connecting: Connecting, wanted: NetworkSettings): Promise<Network> {
  const { db, settings, log, signal, fail } = connecting
  const { known: patience = { forMs: KNOWN_MS, everyMs: RETRY_MS }, uncheckedMs = UNCHECKED_MS } = connecting
  const known = await keptNetwork(db, wantedOf(settings, wanted))
  if (!known) return await checkPatiently(connecting, wanted)
  try {
    return await checkPatiently(connecting, wanted, patience)
  } catch (error) {
    if (!(error instanceof RpcError) || signal.aborted) throw error
    log.error(
      { err: error, network: wanted.name },
      "a network can't be checked; it is served as the last start found it",
    )
    const served = servedAs(known.hasEscrow ? wanted : { ...wanted, escrow: undefined }, known.facts)
    void checkPatiently(connecting, wanted, { forMs: Number.POSITIVE_INFINITY, everyMs: uncheckedMs })
      .then(found => {
        if (factsOf(found) !== factsOf(served))
          throw new NetworkMismatch(`${wanted.name} is no longer as the last start found it. Restart this process.`)
        log.info({ network: wanted.name }, "the network was checked, and is as the last start found it")
      })
      .catch(error => void (signal.aborted || fail(error)))
    return served
  }
}

const factsOf = ({ token, genesisHash, escrow }: Network): string => JSON.stringify([token, genesisHash, escrow])

async function checkPatiently(
  { settings: { payoutWallet, relayWallet }, log, signal }: Connecting,
  wanted: NetworkSettings,
  patience?: Patience,
): Promise<Network> {
  const ask = <T>(work: () => Promise<T>) => patiently(work, log, signal, patience)
  const network = await ask(() => checkNetwork(wanted, signal))
  await ask(() => checkFactory(network, { payoutWallet, signal }))
  const escrow = await ask(() => findEscrow(network, { relayWallet, signal }))
  if (network.escrow && !escrow)
    log.warn(
      { network: network.name, escrow: network.escrow.address },
      "there is no escrow here: nothing is held in one",
    )
  return { ...network, escrow }
}

/** Retries for a minute. A node that restarts at the same time is no reason to give up, but a wrong setting is. */
export async function patiently<T>(
  work: () => Promise<T>,
  log: Logger,
  signal: AbortSignal,
  { forMs, everyMs }: Patience = { forMs: PATIENCE_MS, everyMs: RETRY_MS },
): Promise<T> {
  const until = performance.now() + forMs
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (error instanceof NetworkMismatch || signal.aborted || performance.now() > until) throw error
      log.warn({ err: error }, "the network can't be reached yet")
      await sleep(everyMs, undefined, { signal })
    }
  }
}
