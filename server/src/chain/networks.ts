/** The networks that Sluice knows, and the checks before it serves one. */
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
import { invalid } from "../errors.ts"
import { ask, type Endpoint, newEndpoint } from "./endpoints.ts"
import { type EscrowDeployment, knownEscrows } from "./escrow-deployments.ts"
import { type Address, checksummed, type Hash } from "./hex.ts"
import { RpcError, type RpcResult } from "./rpc.ts"

/** `sandbox`: a local chain, play money. `test`: a public test network. `live`: real money. */
export type Mode = "sandbox" | "test" | "live"

/** What is needed to serve one network, as the operator sets it. */
export interface NetworkSettings {
  name: NetworkName
  chainId: number
  rpcUrls: string[]
  token: Address
  /** Blocks, including the one that contains the transfer. */
  confirmations: number
  depositFactory: Address
  /** Undefined: nothing can be sold through an escrow. */
  escrow?: EscrowDeployment | undefined
  sanctionsOracle: Address | undefined
}

/**
 * The facts that are the same for everyone on a network: its chain id, its name for people, its USDC, the default
 * escrow and Chainalysis' oracle if there are any, its explorer, and the public node that a payer's wallet gets when it
 * does not know the network.
 */
export const networkFacts: Record<
  "base" | "worldchain" | "base-sepolia",
  {
    chainId: number
    title: string
    usdc: Address
    escrow: Address | undefined
    sanctionsOracle: Address | undefined
    explorer: string
    publicRpc: string
  }
> = {
  base: {
    chainId: 8453,
    title: "Base",
    usdc: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913" as Address,
    escrow: knownEscrows[0].address,
    sanctionsOracle: "0x3a91a31cb3dc49b4db9ce721f50a9d076c8d739b" as Address,
    explorer: "https://basescan.org",
    publicRpc: "https://mainnet.base.org",
  },
  worldchain: {
    chainId: 480,
    title: "World Chain",
    usdc: "0x79a02482a880bce3f13e09da970dc34db4cd24d1" as Address,
    escrow: undefined,
    sanctionsOracle: undefined,
    explorer: "https://worldscan.org",
    publicRpc: "https://worldchain-mainnet.g.alchemy.com/public",
  },
  "base-sepolia": {
    chainId: 84532,
    title: "Base Sepolia",
    usdc: "0x036cbd53842c5426634e7929541ec2318f3dcf7e" as Address,
    escrow: knownEscrows[0].address,
    sanctionsOracle: undefined,
    explorer: "https://sepolia.basescan.org",
    publicRpc: "https://sepolia.base.org",
  },
}

export type NetworkName = keyof typeof networkFacts
export const networkNames = Object.keys(networkFacts) as [NetworkName, ...NetworkName[]]

/** The name of a setting that exists once per network, such as RPC_BASE_SEPOLIA. */
export const networkSetting = (part: string, name: NetworkName): string =>
  `${part}_${name.toUpperCase().replaceAll("-", "_")}`

/** The name of a chain of {@link networkFacts}, served or not; the chain's number where it is not listed there. */
export const chainName = (chainId: number): string =>
  networkNames.find(name => networkFacts[name].chainId === chainId) ?? `chain ${chainId}`

/** The link at which a person can look up a transaction; null in the sandbox, whose chain has no explorer. */
export const explorerUrl = (mode: Mode, network: { name: NetworkName }, txHash: Hash): string | null =>
  mode === "sandbox" ? null : `${networkFacts[network.name].explorer}/tx/${txHash}`

export interface Token {
  address: Address
  symbol: string
  decimals: number
  /** The EIP-712 domain's name and version, as its contract reports them. */
  name: string
  version: string
}

/** What is known about a served network without asking it. Code inside a transaction gets only this. */
export interface NetworkInfo {
  name: NetworkName
  chainId: number
  /** Their number decides how many must agree; only a {@link Network} has the endpoints themselves. */
  endpoints: { readonly length: number }
  /** Blocks, including the one that contains the transfer. */
  confirmations: bigint
  token: Token
  depositFactory: Address
  /** Undefined: nothing can be sold through an escrow. */
  escrow: EscrowDeployment | undefined
  sanctionsOracle: Address | undefined
  genesisHash: Hash
}

/** A network that was checked and is served. */
export interface Network extends NetworkInfo {
  endpoints: readonly Endpoint[]
}

/** A chain that can be asked. A wallet needs no more to send transactions there. */
export type ReachableChain = Pick<Network, "name" | "chainId" | "endpoints">

/** The served networks; the first is the default. */
export interface Chain {
  networks: Network[]
}

/** The served networks without their endpoints. */
export interface ChainInfo {
  networks: readonly NetworkInfo[]
}

/**
 * Returns the network that a request names, the default one if it names none; throws `VALIDATION_ERROR` when it is not
 * served.
 */
export function networkAsked<N extends NetworkInfo>(chain: { networks: readonly N[] }, name: string | undefined): N {
  const network = name === undefined ? chain.networks[0] : chain.networks.find(each => each.name === name)
  if (!network)
    throw invalid("chain", `must name a network of this service: ${chain.networks.map(each => each.name).join(", ")}`)
  return network
}

/** The network of a row; throws when a network with rows is no longer in the settings. */
export function networkOf<N extends { chainId: number }>(chain: { networks: readonly N[] }, chainId: number): N {
  const network = chain.networks.find(each => each.chainId === chainId)
  if (!network) throw new Error(`The database has rows of chain ${chainId}, but NETWORKS does not name it`)
  return network
}

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

/** What is the same at every endpoint of a chain. */
export type Facts = Pick<Network, "token" | "genesisHash">

/**
 * Asks the chain for what the settings assume (chain id, token, its EIP-712 domain, sanctions oracle; for the deposit
 * factory see `checkFactory`). Throws a {@link NetworkMismatch} if the chain differs, an RpcError if it can't be asked.
 * All endpoints are asked: if one endpoint could report the decimals alone, everything could be sold for nothing.
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

/** Returns what most endpoints report, at least two if there are three; if two differ, neither. */
function factsOf({ name, rpcUrls }: NetworkSettings, reported: readonly (Facts | Error)[]): Facts {
  const answers = reported.filter(each => !(each instanceof RpcError))
  const groups = Map.groupBy(answers, each => (each instanceof Error ? each.message : JSON.stringify(each)))
  const [first, second] = [...groups.values()].sort((a, b) => b.length - a.length)
  if (!first?.[0]) throw reported[0] ?? new RpcError(`${name}: no endpoint can be reached`)
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
 * The same from one endpoint. Returns a {@link NetworkMismatch} if it differs, or an RpcError if it does not respond,
 * as a value.
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
    if (!results) throw new RpcError(`${settings.name}: no endpoint can be reached`)
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
    throw mismatch(`the EIP-712 domain of the token ${checksummed(settings.token)} does not match its name and version`)
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
