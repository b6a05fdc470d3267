/**
 * Calls of `AuthorizationBatch`, which executes several authorizations in one transaction, each with its own gas. The
 * contract has one address on every network, and only its own code can be there (CREATE2).
 */
import { decodeFunctionData, decodeFunctionResult, encodeFunctionData, type Hex } from "viem"
import { authorizationBatchAbi as abi, authorizationBatchBytecode } from "./abi.ts"
import { create2Deployment } from "./create2.ts"
import { ask, type Endpoint } from "./endpoints.ts"
import type { Address } from "./hex.ts"

/** The transaction that deploys it, and its address. */
export const batchDeployment = create2Deployment(authorizationBatchBytecode)

/**
 * Whether the network has the contract, according to any endpoint. The contract's address is derived from its code, so
 * any code there is the contract. The engine learns the same from a simulation; this function is for people.
 */
export async function hasBatch(endpoints: readonly Endpoint[]): Promise<boolean> {
  const call = { method: "eth_getCode", params: [batchDeployment.address, "latest"] }
  const answers = await Promise.all(endpoints.map(endpoint => ask(endpoint, [call])))
  return answers.some(answer => answer?.[0]?.ok && /^0x[0-9a-f]{2}/i.test(`${answer[0].value}`))
}

/** Returns the calldata of a batch that calls `token` with each of `calls`, with `gasEach` gas for each call. */
export const batchData = (token: Address, gasEach: bigint, calls: readonly Hex[]): Hex =>
  encodeFunctionData({ abi, functionName: "carryOut", args: [token, gasEach, calls] })

/** Returns the token and the calls of a batch's calldata; undefined for any other calldata. */
export function callsIn(data: Hex): { token: Address; calls: readonly Hex[] } | undefined {
  try {
    const [token, , calls] = decodeFunctionData({ abi, data }).args
    return { token: token.toLowerCase() as Address, calls }
  } catch {
    return undefined
  }
}

/** Returns whether each call succeeded; throws if the answer is missing, or not from this contract. */
export const successesIn = (value: unknown): readonly boolean[] =>
  decodeFunctionResult({ abi, functionName: "carryOut", data: value as Hex })
