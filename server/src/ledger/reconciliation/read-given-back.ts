/**
 * Reads which deposits' money was given back, from their factories' `GivenBack` events, with one request for all
 * deposits. No other call sends a deposit's money to anyone but its owner and payees. So a theft is found here even at
 * addresses that are not compared.
 */
import { ask, awake } from "../../platform/chain/endpoints.ts"
import { type GivenBack, givenBackCall, readGivenBack } from "../../platform/chain/give-back.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { RpcResult } from "../../platform/chain/rpc.ts"
import { blockCall, readBlock } from "../../platform/chain/transfers.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import { type Blocks, factoriesOf } from "./list-compared-deposits.ts"

/** An event of a factory, with the hash of its transaction. */
export type Given = GivenBack & { txHash: Hash }

/**
 * Reads the events of all factories from block `from` on, in as many blocks as one request allows. Returns the events
 * that a quorum reports, and the last of these blocks. Returns undefined if too few endpoints answer, or if they
 * disagree.
 */
export async function givenBackFrom(
  ctx: Context,
  network: Network,
  from: bigint,
  last: bigint,
): Promise<{ given: Given[]; to: bigint } | undefined> {
  const factories = await factoriesOf(ctx, network)
  const most = network.endpoints.reduce((low, { logRange }) => (logRange < low ? logRange : low), 10_000n)
  let to = from + most - 1n < last ? from + most - 1n : last
  let given = await givenBackIn(ctx, network, factories, { from, to })
  while (given === "tooMany" && to > from) {
    to = from + (to - from) / 2n
    given = await givenBackIn(ctx, network, factories, { from, to })
  }
  return given === undefined || given === "tooMany" ? undefined : { given, to }
}

/** Returns the events in these blocks. `tooMany` means that an endpoint refused this many blocks. */
async function givenBackIn(
  ctx: Context,
  network: Network,
  factories: readonly Address[],
  { from, to }: Blocks,
): Promise<Given[] | "tooMany" | undefined> {
  const needed = quorumOf(network)
  const calls = [givenBackCall(factories, from, to), blockCall(to)]
  const answers = await Promise.all(awake(network.endpoints).map(endpoint => ask(endpoint, calls, ctx.signal)))
  const said = answers.flatMap(results => {
    const given = givenIn(results, factories, to)
    return given ? [given] : []
  })
  if (said.length < needed) return answers.some(results => results?.[0]?.ok === false) ? "tooMany" : undefined
  const votes = Map.groupBy(
    said.flatMap(given => [...given]),
    ([statement]) => statement,
  )
  const isOpen = [...votes.values()].some(({ length }) => length < needed && said.length - length < needed)
  if (isOpen) return undefined
  return [...votes.values()].flatMap(same => (same.length >= needed ? same.slice(0, 1) : [])).map(([, given]) => given)
}

/**
 * Returns one endpoint's events, keyed by their content; undefined if the endpoint did not answer or lacks the last
 * block.
 */
function givenIn(
  results: RpcResult[] | undefined,
  factories: readonly Address[],
  to: bigint,
): ReadonlyMap<string, Given> | undefined {
  const [logs, shown] = results ?? []
  if (!logs?.ok || !Array.isArray(logs.value) || !shown?.ok) return undefined
  try {
    if (readBlock(shown.value)?.number !== to) return undefined
  } catch {
    return undefined
  }
  const ours = readGivenBack(logs.value).flatMap(given =>
    given.txHash && factories.includes(given.factory) ? [{ ...given, txHash: given.txHash }] : [],
  )
  return new Map(ours.map(given => [statementOf(given), given]))
}

/** A deposit accepts each nonce once, so no two events are the same. */
const statementOf = ({ txHash, factory, deposit, token, to, amount, nonce }: Given): string =>
  `${txHash} ${factory} ${deposit} ${token} ${to} ${amount} ${nonce}`
