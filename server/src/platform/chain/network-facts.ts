/** The facts of the networks that Sluice knows, and the known facts of a served network. */
import { invalid } from "../errors.ts"
import { type EscrowDeployment, knownEscrows } from "./escrow-deployments.ts"
import type { Address, Hash } from "./hex.ts"

/** `sandbox`: a local chain, play money. `test`: a public test network. `live`: real money. */
export type Mode = "sandbox" | "test" | "live"

/**
 * The facts that are the same for everyone on a network. The facts include the network's default escrow and
 * Chainalysis' oracle, if there are any. A payer's wallet that does not know the network gets the public node.
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
/** A network, or the chain of 0G's storage. */
export type ChainName = NetworkName | "0g"
export const networkNames = Object.keys(networkFacts) as [NetworkName, ...NetworkName[]]

/** The name of a setting that exists once per network, such as RPC_BASE_SEPOLIA. */
export const networkSetting = (part: string, name: NetworkName): string =>
  `${part}_${name.toUpperCase().replaceAll("-", "_")}`

/** The name of a chain of {@link networkFacts}, served or not; the chain's number if it is not listed there. */
export const chainName = (chainId: number): string =>
  networkNames.find(name => networkFacts[name].chainId === chainId) ?? `chain ${chainId}`

/** The link at which a person can look up a transaction; null in the sandbox, whose chain has no explorer. */
export const explorerUrl = (mode: Mode, network: { name: NetworkName }, txHash: Hash): string | null =>
  mode === "sandbox" ? null : `${networkFacts[network.name].explorer}/tx/${txHash}`

export interface Token {
  address: Address
  symbol: string
  decimals: number
  /** The name and version of the EIP-712 domain, as its contract reports them. */
  name: string
  version: string
}

/** The facts of a served network that are known without asking it. Code inside a transaction gets only this. */
export interface NetworkInfo {
  name: NetworkName
  chainId: number
  /** The number determines how many endpoints must agree. Only a {@link Network} has the endpoints themselves. */
  endpoints: { readonly length: number }
  /** Blocks, including the one that contains the transfer. */
  confirmations: bigint
  token: Token
  depositFactory: Address
  /** Undefined if nothing can be sold through an escrow. */
  escrow: EscrowDeployment | undefined
  sanctionsOracle: Address | undefined
  genesisHash: Hash
}

/** The served networks without their endpoints. */
export interface ChainInfo {
  networks: readonly NetworkInfo[]
}

/**
 * Returns the network that a request names, or the default one if it names none; throws `VALIDATION_ERROR` if it is not
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
