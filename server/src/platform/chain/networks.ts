/** A served network with its endpoints, and the settings that define it. */
import type { Endpoint } from "./endpoints.ts"
import type { EscrowDeployment } from "./escrow-deployments.ts"
import type { Address } from "./hex.ts"
import type { ChainName, NetworkInfo, NetworkName } from "./network-facts.ts"

/** The settings that are needed to serve one network. */
export interface NetworkSettings {
  name: NetworkName
  chainId: number
  rpcUrls: string[]
  token: Address
  /** Blocks, including the one that contains the transfer. */
  confirmations: number
  depositFactory: Address
  /** Undefined if nothing can be sold through an escrow. */
  escrow?: EscrowDeployment | undefined
  sanctionsOracle: Address | undefined
}

/** A network that was checked and is served. */
export interface Network extends NetworkInfo {
  endpoints: readonly Endpoint[]
}

/**
 * A chain that can be queried. A wallet needs no more than this to send transactions there. Nothing is sold on `0g`.
 */
export interface ReachableChain extends Pick<Network, "chainId" | "endpoints"> {
  name: ChainName
}

/** The served networks; the first is the default. */
export interface Chain {
  networks: Network[]
}
