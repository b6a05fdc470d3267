/**
 * What must not compile inside a transaction. `tsc` checks that each line marked as an error is one. Nothing here runs.
 */
import { ask, askAny } from "./chain/endpoints.ts"
import { networkOf } from "./chain/network-facts.ts"
import type { Network } from "./chain/networks.ts"
import { openQuorum } from "./chain/quorum.ts"
import { screen } from "./chain/screen-addresses.ts"
import { type Context, inTransaction, type TxContext } from "./context.ts"

declare const outside: Context
const calls = [{ method: "eth_chainId", params: [] }]

export const allowed = inTransaction(outside, async ctx => {
  const network = networkOf(ctx.chain, 84532)
  return [network.token.decimals, network.endpoints.length, await ctx.db.selectFrom("merchants").select("id").execute()]
})

export const refused = inTransaction(outside, async ctx => {
  const network = networkOf(ctx.chain, 84532)
  // @ts-expect-error: one endpoint
  await ask(network.endpoints[0], calls, AbortSignal.timeout(1))
  // @ts-expect-error: any endpoint
  await askAny(network.endpoints, calls, AbortSignal.timeout(1))
  // @ts-expect-error: a quorum of them
  await openQuorum(network, 0n, AbortSignal.timeout(1))
  // @ts-expect-error: the sanctions oracle
  await screen(ctx, [], "payment")
  // @ts-expect-error: the process's signal, which only code that waits for a network needs
  ctx.signal.throwIfAborted()
  // @ts-expect-error: Redis
  ctx.limits satisfies unknown
  // @ts-expect-error: another transaction, which on the embedded database waits for this one
  await inTransaction(ctx, async () => undefined)
})

export const narrower: TxContext = outside
// @ts-expect-error: the way back
export const wider: Context = narrower
// @ts-expect-error: a network that was got inside
export const reached: Network = networkOf(narrower.chain, 84532)
