/** Reads the balances of many receiving addresses at the head of the chain, as each endpoint reports them. */
import { decodeFunctionResult, encodeFunctionData, erc20Abi } from "viem"
import { votesNeeded } from "../../platform/chain/agreement.ts"
import { ask, awake } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { multicall, readMulticall } from "../../platform/chain/multicall.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { RpcResult } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"

/** How many balances one call reads. */
export const ADDRESSES_PER_CALL = 500

/**
 * What the endpoints say about an address. The address holds what its rows say (`same`) or another sum (`other`).
 * `doubtful` means that some endpoints report another sum, but too few. `alone` means that all answers match the rows,
 * but too few endpoints answered.
 */
export type Said = "same" | "other" | "doubtful" | "alone" | "nothing"

/** Compares balances in the settlement token with the expected balances, at most 500 in each call. */
export async function compareBalances(
  ctx: Context,
  network: Network,
  expected: readonly { address: Address; balance: bigint }[],
): Promise<Said[]> {
  const reported = await balancesOf(ctx, network, expected)
  const needed = votesNeeded(network.endpoints.length)
  return expected.map(({ balance }, i): Said => {
    const balances = reported[i] ?? []
    const others = balances.filter(each => each !== balance).length
    if (others >= needed) return "other"
    if (others > 0) return "doubtful"
    return balances.length >= needed ? "same" : balances.length > 0 ? "alone" : "nothing"
  })
}

/** Reads the balances from every endpoint, because one may lag or hide a payment. */
async function balancesOf(
  ctx: Context,
  network: Network,
  deposits: readonly { address: Address }[],
): Promise<bigint[][]> {
  const functionName = "balanceOf"
  const reads = deposits.map(({ address }) => ({
    to: network.token.address,
    data: encodeFunctionData({ abi: erc20Abi, functionName, args: [address] }),
  }))
  const answers = await Promise.all(
    awake(network.endpoints).map(async endpoint => {
      const [result] = (await ask(endpoint, [multicall(reads)], ctx.signal)) ?? []
      return readBalances(result)
    }),
  )
  return deposits.map((_, i) => answers.flatMap(balances => balances[i] ?? []))
}

/** Returns the balances. A balance that can't be read is undefined, and counts as not reported. */
function readBalances(result: RpcResult | undefined): (bigint | undefined)[] {
  if (!result?.ok) return []
  try {
    return readMulticall(result.value).map(data =>
      data ? decodeFunctionResult({ abi: erc20Abi, functionName: "balanceOf", data }) : undefined,
    )
  } catch {
    return []
  }
}
