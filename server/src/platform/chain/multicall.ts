/** Many reads in one call, through Multicall3, which has the same address on every network served. */
import { decodeFunctionResult, encodeFunctionData, type Hex, multicall3Abi } from "viem"
import type { Address } from "./hex.ts"
import { hexNumber, type RpcCall } from "./rpc.ts"

export const MULTICALL3 = "0xca11bde05977b3631167028862be2a173976ca11" as Address

export interface Read {
  to: Address
  data: Hex
}

/** One `eth_call` for many reads, at a block or at the head. */
export const multicall = (reads: readonly Read[], at?: bigint): RpcCall => ({
  method: "eth_call",
  params: [
    {
      to: MULTICALL3,
      data: encodeFunctionData({
        abi: multicall3Abi,
        functionName: "aggregate3",
        args: [reads.map(({ to, data }) => ({ target: to, allowFailure: true, callData: data }))],
      }),
    },
    at === undefined ? "latest" : hexNumber(at),
  ],
})

/** Returns what each read returned, undefined if it failed; throws when the answer is not from Multicall3. */
export const readMulticall = (value: unknown): (Hex | undefined)[] =>
  decodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", data: value as Hex }).map(
    ({ success, returnData }) => (success && returnData !== "0x" ? returnData : undefined),
  )
