/** Checks a network by its settings: the endpoints, the clock, the token, the factory, and the wallets' gas. */
// I/O: queries the endpoints, including before the service starts, when there is no context.
import { formatEther } from "viem"
import { checkFactory } from "../../ledger/deposits/check-factory.ts"
import { NO_KEY } from "../../ledger/payouts/find-payout-alarms.ts"
import { gasShortage, usualCost, walletAlarm } from "../../ledger/txmanager/report-wallet-alarms.ts"
import { hasBatch } from "../../platform/chain/authorization-batch.ts"
import { checkNetwork, NetworkMismatch } from "../../platform/chain/check-network.ts"
import { type Endpoint, hostOf, newEndpoint } from "../../platform/chain/endpoints.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { type NetworkName, networkSetting } from "../../platform/chain/network-facts.ts"
import type { NetworkSettings } from "../../platform/chain/networks.ts"
import { blockOf, NEWEST_BLOCK, numberOf } from "../../platform/chain/newest-block.ts"
import { endpointMessage } from "../../platform/chain/note-endpoint-troubles.ts"
import { batch, hexNumber, type RpcResult } from "../../platform/chain/rpc.ts"
import { readGas } from "../../platform/chain/wallet-state.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { type Finding, fine } from "./finding.ts"

/** If the newest block is further in the future than this, our clock is behind. */
const AHEAD_MS = 15_000
/**
 * If the newest block is older than this, something is wrong: every network here produces a block every two seconds.
 */
const OLD_MS = 120_000

/** What the checks of a network need; `now` is the clock of this process. */
export interface NetworkCheck {
  settings: Settings
  network: NetworkSettings
  now: () => Date
  signal: AbortSignal
  /** The names of settings with a fault. Checks that depend on one of them are skipped. */
  faulty: ReadonlySet<string>
}

/** The checks that a running service repeats each minute: endpoints, clock, keys and gas. */
export async function checkNetworkState(check: NetworkCheck): Promise<Finding[]> {
  const { network, settings } = check
  if (check.faulty.has(networkSetting("RPC", network.name))) return []
  const answers = await Promise.all(network.rpcUrls.map(url => askEndpoint(network, url, check.signal)))
  const serving = answers.some(each => each.finding.level === "ok")
  const endpoints = serving
    ? answers.map(each => each.finding)
    : // If no endpoint answers, the rounds record nothing about them, so nothing else raises these alarms.
      answers.map(({ finding }) => ({ ...finding, level: "fault" as const, isWatched: false }))
  return [
    ...endpoints,
    ...enoughEndpoints(network),
    ...clock(network, answers, check.now),
    ...(serving ? await wallets(check) : []),
    ...(settings.payoutWallet ? [] : noKey(check)),
  ]
}

/** The checks that are also made at a start: the token, the chain, and the deposit factory. */
export async function checkContracts({ network, settings, signal, faulty }: NetworkCheck): Promise<Finding[]> {
  const part = network.name
  const setting = (name: "RPC" | "TOKEN" | "DEPOSIT_FACTORY") => networkSetting(name, network.name)
  if (faulty.has(setting("RPC")) || faulty.has(setting("TOKEN"))) return []
  const token = await attempt(part, "token", `Check ${setting("RPC")} and ${setting("TOKEN")}.`, async () => {
    const { symbol, decimals } = (await checkNetwork(network, signal)).token
    return `the token is ${symbol} with ${decimals} decimals, and the chain is ${network.chainId}`
  })
  if (faulty.has(setting("DEPOSIT_FACTORY"))) return [token]
  const cure = `Deploy one with \`sluice deploy --network ${network.name} --guardian ADDRESS\`, which prints ${setting("DEPOSIT_FACTORY")}.`
  const endpoints = network.rpcUrls.map(url => newEndpoint(network.name, url))
  const factory = await attempt(part, "factory", cure, async () => {
    const { payoutWallet } = settings
    await checkFactory({ ...network, endpoints }, { payoutWallet, signal })
    return `the deposit factory has this version's code${payoutWallet ? ", and its operator is the payout wallet" : ""}`
  })
  return [token, factory]
}

/**
 * Runs a check that throws an Error with a sentence if it fails. A mismatch is a fault, and so is an unreachable chain.
 */
async function attempt(part: string, check: string, todo: string, work: () => Promise<string>): Promise<Finding> {
  try {
    return fine(part, check, await work())
  } catch (error) {
    const message = (error as Error).message.replace(`${part}: `, "")
    const cure = error instanceof NetworkMismatch ? todo : "See the findings about the endpoints."
    return { part, check, level: "fault", message, todo: cure }
  }
}

interface Answer {
  finding: Finding
  /** The time of the newest block, in milliseconds; undefined if the endpoint does not serve the network. */
  blockMs?: number
}

async function askEndpoint(network: NetworkSettings, url: string, signal: AbortSignal): Promise<Answer> {
  const position = network.rpcUrls.indexOf(url)
  const name = (words: string) => endpointMessage(network.rpcUrls.length, position, words)
  const check = `endpoint_${position + 1}`
  const host = hostOf({ url })
  const bad = (words: string, todo: string, more: Partial<Finding> = {}): Answer => ({
    finding: { part: network.name, check, level: "alarm", message: name(words), todo, isWatched: true, ...more },
  })
  const calls = [
    { method: "eth_chainId", params: [] },
    NEWEST_BLOCK,
    { method: "eth_getBlockByNumber", params: ["finalized", false] },
    { method: "eth_getLogs", params: [{ fromBlock: "latest", toBlock: "latest", address: network.token }] },
  ]
  const results = await batch({ url, network: network.name }, calls, signal).catch((error: Error) => error)
  if (results instanceof Error)
    return bad("does not answer", `Check the endpoint at ${host} (${results.message}), or replace it.`, {
      said: results.message,
    })
  const [chain, latest, finalized, logs] = results
  const chainId = chain?.ok ? String(chain.value) : undefined
  if (chainId === undefined) return bad("does not answer", `The endpoint at ${host} says: ${errorOf(chain)}.`)
  if (chainId !== hexNumber(network.chainId))
    return bad(
      `serves chain ${numberOf(chainId) ?? "without a number"}, not ${network.chainId}`,
      `Move the endpoint at ${host} to the setting of its own chain: ${networkSetting("RPC", network.name)} is for chain ${network.chainId}.`,
      { isWatched: false },
    )
  const block = blockOf(latest)
  if (!block) return bad("does not answer", `The endpoint at ${host} reports no newest block: ${errorOf(latest)}.`)
  if (!logs?.ok) return bad("refuses eth_getLogs", `The endpoint at ${host} says: ${errorOf(logs)}.`)
  const finality = blockOf(finalized) ? "" : ", and reports no finalized block, so payments become final later"
  return {
    finding: fine(network.name, check, name(`answers at block ${block.number}${finality}`)),
    blockMs: block.timeMs,
  }
}

const errorOf = (result: RpcResult | undefined): string => (result?.ok === false ? result.error : "nothing usable")

/** Endpoints with the same host count as one: if a provider lies or is down, that affects all of its endpoints. */
function enoughEndpoints({ name, rpcUrls }: NetworkSettings): Finding[] {
  const hosts = new Set(rpcUrls.map(url => hostOf({ url })))
  if (hosts.size > 1) return []
  const message =
    rpcUrls.length > 1
      ? "all RPC endpoints have the same host, so the service trusts everything that this host reports"
      : "there is only one RPC endpoint, so the service trusts everything that it reports"
  const todo = `Add endpoints of other companies to ${networkSetting("RPC", name)}, separated by commas; use three if real money is at stake (docs/operators/trust.md).`
  return [{ part: name, check: "endpoints", level: "alarm", message, todo }]
}

/**
 * Compares the newest block of all endpoints with our clock. A single endpoint that has stopped is noticed by the
 * rounds.
 */
function clock({ name }: NetworkSettings, answers: readonly Answer[], now: () => Date): Finding[] {
  const times = answers.map(each => each.blockMs).filter(ms => ms !== undefined)
  if (times.length === 0) return []
  const ageMs = now().getTime() - Math.max(...times)
  const seconds = Math.round(Math.abs(ageMs) / 1_000)
  const bad = (message: string, todo: string): Finding[] => [
    { part: name, check: "clock", level: "alarm", message, todo },
  ]
  if (ageMs < -AHEAD_MS)
    return bad(
      `the newest block is ${seconds} s in the future: the clock of this machine is behind`,
      "Synchronize the clock with NTP (chrony, systemd-timesyncd).",
    )
  if (ageMs > OLD_MS)
    return bad(
      `the newest block is ${seconds} s old: the clock of this machine is ahead, or the chain or its endpoints have stopped`,
      "Compare the clock with NTP, and the newest block with an explorer.",
    )
  return [fine(name, "clock", `the newest block is ${Math.max(0, Math.round(ageMs / 1_000))} s old`)]
}

function noKey({ network: { name } }: NetworkCheck): Finding[] {
  const todo =
    'Create a key (docs/operators/operations.md, "From nothing to a live network"). Its wallet must be the operator of the deposit factory.'
  return [{ part: name, check: "payout_key", level: "alarm", message: NO_KEY, todo }]
}

/** Checks whether agents' payments that are due together can share a transaction on this network. */
async function batchContract(name: NetworkName, endpoints: readonly Endpoint[]): Promise<Finding> {
  const check = "authorization_batch"
  if (await hasBatch(endpoints)) return fine(name, check, "agents' payments that are due together share a transaction")
  const message =
    "agents' payments are sent one by one, at most 16 in one or two blocks, because the batch contract for authorizations is not deployed"
  const todo = `Run \`sluice deploy --contract authorization-batch --network ${name}\`, from any account.`
  return { part: name, check, level: "note", message, todo }
}

async function wallets({ network, settings, signal }: NetworkCheck): Promise<Finding[]> {
  const { payoutWallet, relayWallet } = settings
  const endpoints = network.rpcUrls.map(url => newEndpoint(network.name, url))
  const gasOf = async (lane: "payout" | "relay", wallet: Address): Promise<Finding> => {
    const check = `${lane}_wallet`
    const { balance, market, dataFee } = await readGas({ ...network, endpoints }, wallet, signal)
    if (balance === undefined || market === undefined) {
      const todo = "See the findings about the endpoints."
      return {
        part: network.name,
        check,
        level: "alarm",
        message: walletAlarm(lane, "rpc_unavailable"),
        todo,
        isWatched: true,
      }
    }
    const shortage = gasShortage({ balance, market, dataFee }, settings.payoutMaxFee)
    const payouts = balance / usualCost(market, dataFee)
    if (!shortage) return fine(network.name, check, `the ${lane} wallet has gas for ${payouts} typical payouts`)
    const todo = `Send ether to ${checksummed(wallet)}, which has ${formatEther(balance)}: at current prices, 100 typical payouts cost ${formatEther(100n * usualCost(market, dataFee))}.`
    return { part: network.name, check, level: "alarm", message: walletAlarm(lane, shortage), todo }
  }
  return [
    ...(payoutWallet ? [await gasOf("payout", payoutWallet)] : []),
    ...(relayWallet
      ? [await gasOf("relay", relayWallet), await batchContract(network.name, endpoints)]
      : [
          {
            part: network.name,
            check: "relay_key",
            level: "note" as const,
            message: "the service has no relay key, so buyers can't pay by signature",
            todo: "Set RELAY_PRIVATE_KEY, RELAY_KEYSTORE or RELAY_SIGNER to offer gasless payments.",
          },
        ]),
  ]
}
