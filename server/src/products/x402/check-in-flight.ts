/**
 * Limits how many concurrent authorizations a payer may have beyond its balance. Each passes its own simulation, and
 * those that the balance does not cover revert at our cost.
 */
import { sql } from "kysely"
import { MAX_OPEN, MAX_REVERTED } from "../../ledger/relays/check-payer-limits.ts"
import { balanceCall } from "../../ledger/relays/try-relay.ts"
import { authorizationDigest } from "../../platform/chain/authorizations.ts"
import { isSignedByKey } from "../../platform/chain/check-signatures.ts"
import { askAny } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Payment } from "./protocol.ts"
import { type Refusal, refuse } from "./reasons.ts"

/** The amounts of authorizations, by nonce. */
type Amounts = Map<Hash, bigint>

/** The authorizations that this process is checking and has not written yet, in arrival order. */
const checking = new Map<string, Amounts>()

/**
 * Runs `work`, which checks and writes a claim, or returns a refusal if too many of the payer's authorizations are in
 * flight. As many authorizations as may revert in a day may exceed the balance, because newly mined ones still count
 * as in flight. Each process counts its own checks. Throws `RATE_LIMITED` and `CHAIN_UNAVAILABLE`.
 *
 * Anyone can send an authorization in a payer's name. So only authorizations that the payer's key signed take the
 * payer's slots while they are checked. Those of a contract wallet count once they are written.
 */
export async function withinBalance<T>(
  ctx: Context,
  network: Network,
  { authorization, signature }: Pick<Payment, "authorization" | "signature">,
  work: () => Promise<T>,
): Promise<T | Refusal> {
  const { from, nonce, value } = authorization
  const key = `${network.chainId} ${from}`
  const mine = checking.get(key) ?? new Map<Hash, bigint>()
  const before = [...mine]
  const isSigned = isSignedByKey({ from, digest: authorizationDigest(network, authorization), signature })
  const isFirst = isSigned && !mine.has(nonce)
  if (isFirst) checking.set(key, mine.set(nonce, value))
  try {
    const others: Amounts = new Map([...before, ...((await inFlight(ctx, key)) ?? [])])
    others.delete(nonce)
    if (others.size >= MAX_OPEN) throw new ApiError("RATE_LIMITED", undefined, TOO_MANY)
    if (others.size >= MAX_REVERTED && (await isBeyond(ctx, network, from, [...others.values(), value])))
      return refuse("insufficient_funds", BEYOND)
    return await work()
  } finally {
    if (isFirst) mine.delete(nonce)
    if (mine.size === 0 && checking.get(key) === mine) checking.delete(key)
  }
}

const TOO_MANY = `${MAX_OPEN} payments of this wallet are already in progress. This one paid nothing: try again when some have ended.`
const BEYOND =
  "The payments of this wallet in progress need more money than it holds. This one paid nothing: wait until they have ended, then try again."

/** The relays of payers that may still move money. Concurrent requests share a statement. */
const inFlight = gatherBy(async (ctx: Context, keys: readonly string[]): Promise<Map<string, Amounts>> => {
  const given = keys.map(key => key.split(" ")).map(([chain_id, payer]) => ({ chain_id, payer }))
  const chains = [...new Set(given.map(({ chain_id }) => chain_id))].map(chain_id => ({ chain_id }))
  // Selected by state first, and only then by payer, because few relays are in flight, but a payer's history is long.
  const { rows } = await sql<{ chain_id: number; payer: Address; auth_nonce: Hash; amount: bigint }>`
    /* named: relays_in_flight */ select i.chain_id, i.payer, i.auth_nonce, i.amount
    from (${rowsParameter(chains, "chain_id integer")}) c cross join lateral (
      select chain_id, payer, auth_nonce, amount from payouts
      where chain_id = c.chain_id and lane = 'relay' and state in ('queued', 'held', 'assigned') offset 0) i
    where (i.chain_id, i.payer::text) in (${rowsParameter(given, "chain_id integer, payer text")})`.execute(ctx.db)
  const found = new Map<string, Amounts>()
  for (const { chain_id, payer, auth_nonce, amount } of rows) {
    const key = `${chain_id} ${payer}`
    found.set(key, (found.get(key) ?? new Map()).set(auth_nonce, amount))
  }
  return found
})

async function isBeyond(ctx: Context, network: Network, payer: Address, amounts: bigint[]): Promise<boolean> {
  const [answer] = await askAny(network.endpoints, [balanceCall(network, payer)], ctx.signal).catch(error => {
    if (error instanceof RpcError) throw new ApiError("CHAIN_UNAVAILABLE")
    throw error
  })
  if (!answer?.ok || !/^0x[0-9a-f]{1,64}$/i.test(`${answer.value}`)) throw new ApiError("CHAIN_UNAVAILABLE")
  let left = BigInt(`${answer.value}`)
  let beyond = 0
  for (const amount of amounts.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))) {
    if (amount <= left) left -= amount
    else beyond++
  }
  return beyond > MAX_REVERTED
}
