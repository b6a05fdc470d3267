/**
 * Reads from which deposits money was given back, by the `GivenBack` events of their factories: one question for all
 * deposits. Nothing else sends a deposit's money to anyone but its owner and payees, so a theft at an address that is
 * not compared otherwise shows here.
 */
import { ask, awake } from "../chain/endpoints.ts"
import { givenBackCall, readGivenBack } from "../chain/give-back.ts"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { RpcResult } from "../chain/rpc.ts"
import { blockCall, readBlock } from "../chain/transfers.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Blocks } from "./compared-deposits.ts"

/**
 * Returns the deposits that a quorum of endpoints names. `tooMany`: an endpoint refused so many blocks. Undefined: too
 * few endpoints answered, or they do not agree.
 */
export async function givenBackIn(
  ctx: Context,
  network: Network,
  factories: readonly Address[],
  { from, to }: Blocks,
): Promise<Address[] | "tooMany" | undefined> {
  const needed = quorumOf(network)
  const calls = [givenBackCall(factories, from, to), blockCall(to)]
  const answers = await Promise.all(awake(network.endpoints).map(endpoint => ask(endpoint, calls, ctx.signal)))
  const named = answers.flatMap(results => {
    const deposits = depositsIn(results, factories, to)
    return deposits ? [deposits] : []
  })
  if (named.length < needed) return answers.some(results => results?.[0]?.ok === false) ? "tooMany" : undefined
  const votes = Map.groupBy(
    named.flatMap(deposits => [...deposits]),
    address => address,
  )
  const isOpen = [...votes.values()].some(({ length }) => length < needed && named.length - length < needed)
  return isOpen ? undefined : [...votes].flatMap(([address, { length }]) => (length >= needed ? [address] : []))
}

/** The deposits that one endpoint names; undefined where it did not answer, or does not show the last block. */
function depositsIn(
  results: RpcResult[] | undefined,
  factories: readonly Address[],
  to: bigint,
): ReadonlySet<Address> | undefined {
  const [logs, shown] = results ?? []
  if (!logs?.ok || !Array.isArray(logs.value) || !shown?.ok) return undefined
  try {
    if (readBlock(shown.value)?.number !== to) return undefined
  } catch {
    return undefined
  }
  const ours = readGivenBack(logs.value).filter(({ factory }) => factories.includes(factory))
  return new Set(ours.map(({ deposit }) => deposit))
}
