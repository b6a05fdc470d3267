/** Many calls in one, through Multicall3, which has the same address on every network served. */
import { decodeFunctionData, decodeFunctionResult, encodeFunctionData, type Hex, multicall3Abi } from "viem"
import type { Address } from "./hex.ts"
import { hexNumber, type RpcCall } from "./rpc.ts"

export const MULTICALL3 = "0xca11bde05977b3631167028862be2a173976ca11" as Address

export interface Call {
  to: Address
  data: Hex
}

/** Returns the calldata with which Multicall3 makes these calls in order; a call that fails does not stop the others. */
export const multicallData = (calls: readonly Call[]): Hex =>
  encodeFunctionData({
    abi: multicall3Abi,
    functionName: "aggregate3",
    args: [calls.map(({ to, data }) => ({ target: to, allowFailure: true, callData: data }))],
  })

/** Returns the calls in Multicall3's calldata; undefined for any other calldata. */
export function callsIn(data: Hex): Call[] | undefined {
  try {
    const { functionName, args } = decodeFunctionData({ abi: multicall3Abi, data })
    if (functionName !== "aggregate3") return undefined
    return args[0].map(({ target, callData }) => ({ to: target.toLowerCase() as Address, data: callData }))
  } catch {
    return undefined
  }
}

/** One `eth_call` for many reads, at a block or at the head. */
export const multicall = (reads: readonly Call[], at?: bigint): RpcCall => ({
  method: "eth_call",
  params: [{ to: MULTICALL3, data: multicallData(reads) }, at === undefined ? "latest" : hexNumber(at)],
})

/** Returns what each read returned, undefined if it failed; throws when the answer is not from Multicall3. */
export const readMulticall = (value: unknown): (Hex | undefined)[] =>
  resultsOf(value).map(({ success, returnData }) => (success && returnData !== "0x" ? returnData : undefined))

/** Returns whether each call succeeded; throws when the answer is not from Multicall3. */
export const successesOf = (value: unknown): boolean[] => resultsOf(value).map(({ success }) => success)

const resultsOf = (value: unknown) =>
  decodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", data: value as Hex })
