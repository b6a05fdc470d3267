/** 0G's chain and storage network, as a process knows them. */
import { newEndpoint } from "../../../platform/chain/endpoints.ts"
import type { Address } from "../../../platform/chain/hex.ts"
import type { ReachableChain } from "../../../platform/chain/networks.ts"
import type { ZerogSettings } from "../../../platform/config/settings.ts"

/** Where files are stored: the chain, its `Flow` contract, and the indexer that names the nodes. */
export interface Storage {
  chain: ReachableChain
  flow: Address
  indexer: string
  /** The highest fee for a file, in wei of this chain. */
  maxFee: bigint
}

export const storageOf = ({ chainId, rpcUrls, flow, indexer, maxFee }: ZerogSettings): Storage => ({
  chain: { name: "0g", chainId, endpoints: rpcUrls.map((url, i) => newEndpoint("0g", url, i + 1)) },
  flow,
  indexer,
  maxFee,
})
