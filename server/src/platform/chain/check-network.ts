/**
 * Checks a network before it is served: each endpoint must be on the chain that the settings name, and have the token
 * that they name.
 */
import {
  type AbiFunction,
  decodeFunctionResult,
  encodeAbiParameters,
  encodeFunctionData,
  type Hex,
  keccak256,
  parseAbi,
  toHex,
} from "viem"
import { ask, type Endpoint, newEndpoint } from "./endpoints.ts"
import { type Address, checksummed, type Hash } from "./hex.ts"
import type { Network, NetworkSettings } from "./networks.ts"
import { RpcError, type RpcResult } from "./rpc.ts"

/** A network whose settings contradict its chain: the service must not start with it. */
export class NetworkMismatch extends Error {}

const oracleAbi = parseAbi(["function isSanctioned(address) view returns (bool)"])
const tokenAbi = parseAbi([
  "function name() view returns (string)",
  "function version() view returns (string)",
  "function symbol() view returns (string)",
  "function decimals() view returns (uint8)",
  "function DOMAIN_SEPARATOR() view returns (bytes32)",
])
/** An address without an owner, to ask an oracle a harmless question. */
const NOBODY = "0x000000000000000000000000000000000000dEaD"

/** The facts that are the same at every endpoint of a chain. */
export type Facts = Pick<Network, "token" | "genesisHash">

/**
 * Asks the chain for what the settings assume: the chain id, the token with its EIP-712 domain, and the sanctions
 * oracle (`checkFactory` checks the deposit factory). Throws a {@link NetworkMismatch} if the chain differs, and an
 * RpcError if the chain can't be queried. All endpoints are queried, because if one could report the decimals alone,
 * everything could be sold for nothing.
 */
export async function checkNetwork(settings: NetworkSettings, signal?: AbortSignal): Promise<Network> {
  const endpoints = endpointsOf(settings)
  const reported = await Promise.all(endpoints.map(endpoint => factsBy(settings, endpoint, signal)))
  return servedAs(settings, factsOf(settings, reported), endpoints)
}

const endpointsOf = ({ name, rpcUrls }: NetworkSettings): Endpoint[] =>
  rpcUrls.map((url, i) => newEndpoint(name, url, i + 1))

/** The network of these settings with facts that its chain reported. */
export function servedAs(settings: NetworkSettings, facts: Facts, endpoints = endpointsOf(settings)): Network {
  const { name, chainId, confirmations, depositFactory, escrow, sanctionsOracle } = settings
  const given = { name, chainId, depositFactory, escrow, sanctionsOracle, confirmations: BigInt(confirmations) }
  return { ...given, endpoints, ...facts }
}

/**
 * Returns what most endpoints report, at least two if there are three. If there are two reports and they differ,
 * neither counts.
 */
function factsOf({ name, rpcUrls }: NetworkSettings, reported: readonly (Facts | Error)[]): Facts {
  const answers = reported.filter(each => !(each instanceof RpcError))
  const groups = Map.groupBy(answers, each => (each instanceof Error ? each.message : JSON.stringify(each)))
  const [first, second] = [...groups.values()].sort((a, b) => b.length - a.length)
  if (!first?.[0]) throw reported[0] ?? new RpcError(`${name}: no endpoint is reachable`)
  if (rpcUrls.length > 2 && first.length < 2)
    throw new RpcError(`${name}: no two endpoints agree on the token and the genesis block`)
  if (second && second.length === first.length)
    throw (
      answers.find(each => each instanceof Error) ??
      new NetworkMismatch(`${name}: the endpoints disagree on the token, or on the genesis block`)
    )
  if (first[0] instanceof Error) throw first[0]
  return first[0]
}

/**
 * Asks one endpoint for these facts. Returns, as a value, a {@link NetworkMismatch} if the endpoint differs, or an
 * RpcError if it does not respond.
 */
async function factsBy(
  settings: NetworkSettings,
  endpoint: Endpoint,
  signal: AbortSignal | undefined,
): Promise<Facts | Error> {
  const call = (to: Address, abi: readonly AbiFunction[], functionName: string, args: unknown[] = []) => ({
    method: "eth_call",
    params: [{ to, data: encodeFunctionData({ abi, functionName, args }) }, "latest"],
  })
  const { sanctionsOracle: oracle } = settings
  const calls = [
    { method: "eth_chainId", params: [] },
    { method: "eth_getBlockByNumber", params: ["0x0", false] },
    ...tokenCalls.map(name => call(settings.token, tokenAbi, name)),
    ...(oracle ? [call(oracle, oracleAbi, "isSanctioned", [NOBODY])] : []),
  ]
  const results = await ask(endpoint, calls, signal)
  try {
    if (!results) throw new RpcError(`${settings.name}: no endpoint is reachable`)
    return readFacts(settings, results)
  } catch (error) {
    if (error instanceof NetworkMismatch || error instanceof RpcError) return error
    return new RpcError(`${settings.name}: an answer can't be parsed: ${(error as Error).message}`)
  }
}

const tokenCalls = ["name", "version", "symbol", "decimals", "DOMAIN_SEPARATOR"] as const

function readFacts(settings: NetworkSettings, [chainId, genesis, ...rest]: readonly RpcResult[]): Facts {
  const mismatch = (message: string) => new NetworkMismatch(`${settings.name}: ${message}`)
  const reported = Number(BigInt(value<Hex>(chainId, "eth_chainId")))
  if (reported !== settings.chainId) throw mismatch(`the endpoint serves chain ${reported}, not ${settings.chainId}`)
  if (settings.sanctionsOracle && value<Hex>(rest[tokenCalls.length], "isSanctioned()") === "0x")
    throw mismatch(`there is no sanctions oracle at ${checksummed(settings.sanctionsOracle)}; see SANCTIONS_ORACLE_*`)
  const [name, version, symbol, decimals, separator] = tokenCalls.map((functionName, i) => {
    const data = value<Hex>(rest[i], `${functionName}() of the token`)
    if (data === "0x") throw mismatch(`the token ${checksummed(settings.token)} has no ${functionName}()`)
    return decodeFunctionResult({ abi: tokenAbi, functionName, data })
  }) as [string, string, string, number, Hex]
  if (separator !== domainSeparator(name, version, settings))
    throw mismatch(
      `the EIP-712 domain of the token ${checksummed(settings.token)} does not match the token's name and version`,
    )
  const genesisHash = value<{ hash: Hash }>(genesis, "the genesis block").hash
  return { token: { address: settings.token, symbol, decimals, name, version }, genesisHash }

  function value<T>(result: RpcResult | undefined, what: string): T {
    if (result?.ok) return result.value as T
    const message = `${what} can't be read: ${result?.error ?? "no reply"}`
    // A revert is the chain's own answer; any other error may be a temporary problem of the endpoint.
    throw /revert/i.test(message) ? mismatch(message) : new RpcError(`${settings.name}: ${message}`)
  }
}

/** EIP-712 `hashStruct(eip712Domain)` of a token with the four usual fields. */
function domainSeparator(name: string, version: string, at: { chainId: number; token: Address }): Hex {
  const type = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
  const hash = (text: string) => keccak256(toHex(text))
  return keccak256(
    encodeAbiParameters(
      [{ type: "bytes32" }, { type: "bytes32" }, { type: "bytes32" }, { type: "uint256" }, { type: "address" }],
      [hash(type), hash(name), hash(version), BigInt(at.chainId), at.token],
    ),
  )
}
