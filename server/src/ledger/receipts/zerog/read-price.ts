/** Reads the price of 0G's storage from its contracts. */
import { decodeFunctionResult, encodeFunctionData } from "viem"
import { type Address, parseAddress } from "../../../platform/chain/hex.ts"
import type { Context } from "../../../platform/context.ts"
import { readAgreed } from "./read-agreed.ts"
import type { Storage } from "./storage.ts"
import { flowAbi } from "./submission.ts"

type Reading = Pick<Context, "signal">

/**
 * Returns the price of a chunk in wei. Undefined if too few endpoints report the same price, or if it is 0, which no
 * call can pay.
 */
export async function readPrice(ctx: Reading, storage: Storage): Promise<bigint | undefined> {
  const market = await view(ctx, storage, storage.flow, "market")
  const address = market === undefined ? undefined : parseAddress(`0x${market.slice(26)}`)
  const data = address ? await view(ctx, storage, address, "pricePerSector") : undefined
  const price = data && decodeFunctionResult({ abi: flowAbi, functionName: "pricePerSector", data })
  return price === 0n ? undefined : price
}

async function view(
  ctx: Reading,
  storage: Storage,
  to: Address,
  functionName: "market" | "pricePerSector",
): Promise<`0x${string}` | undefined> {
  const data = encodeFunctionData({ abi: flowAbi, functionName })
  const call = { method: "eth_call", params: [{ to, data }, "latest"] }
  const word = await readAgreed(ctx, storage, call, result =>
    result.ok && /^0x[0-9a-f]{64}$/.test(`${result.value}`) ? `${result.value}` : undefined,
  )
  return word as `0x${string}` | undefined
}
