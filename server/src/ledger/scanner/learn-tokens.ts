/**
 * Reads the symbol and decimals of tokens other than the settlement token, to format their amounts. Nothing here is
 * trusted: anyone can create a token with any name, so the token's address is always shown too.
 */
import { sql } from "kysely"
import { decodeAbiParameters, encodeFunctionData, erc20Abi, type Hex } from "viem"
import { askAny } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { hexNumber, RpcError, type RpcResult } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"

/** How many tokens one round queries. The amounts of other tokens are shown in base units until the next round. */
const TOKENS_PER_ROUND = 20
/** The gas to read two constants. This much gas is enough, and it bounds what a token can do. */
const GAS = 200_000
/** A token with more decimals may be an attempt to hide an amount. */
const MAX_DECIMALS = 36
const SYMBOL = /^[A-Za-z][A-Za-z0-9.]{0,11}$/
/**
 * How many transfers of other tokens are stored per transaction, because a token can emit any number, from any sender.
 */
const OTHERS_PER_TRANSACTION = 20
/**
 * The highest amount that is stored; no real token has this much. Ten amounts of 2²⁵⁶ overflow the database's numbers,
 * and an unwritable value would stop all verification.
 */
const MAX_OTHER = 10n ** 60n

/**
 * Removes harmful transfers: keeps only a few transfers per transaction of tokens other than the settlement token, with
 * amounts that can be summed.
 */
export function withoutFlood<T extends { txHash: string; token: Address; value: bigint }>(
  network: NetworkInfo,
  transfers: T[],
): T[] {
  const kept = new Map<string, number>()
  return transfers.filter(({ txHash, token, value }) => {
    if (token === network.token.address) return true
    if (value > MAX_OTHER) return false
    kept.set(txHash, (kept.get(txHash) ?? 0) + 1)
    return (kept.get(txHash) ?? 0) <= OTHERS_PER_TRANSACTION
  })
}

/** Asks each newly found token once for its symbol and decimals. Call this outside a transaction. */
export async function learnTokens(ctx: Context, network: Network): Promise<void> {
  const { rows } = await sql<{ token: Address }>`
    select distinct t.token from transfers t where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()}
      and t.token <> ${network.token.address}
      and not exists (select from tokens k where k.chain_id = t.chain_id and k.address = t.token)
    limit ${TOKENS_PER_ROUND}`.execute(ctx.db)
  if (rows.length === 0) return
  const calls = rows.flatMap(({ token }) =>
    (["symbol", "decimals"] as const).map(functionName => ({
      method: "eth_call",
      params: [{ to: token, data: encodeFunctionData({ abi: erc20Abi, functionName }), gas: hexNumber(GAS) }, "latest"],
    })),
  )
  const answers = await askAny(network.endpoints, calls, ctx.signal).catch((error): RpcResult[] => {
    if (!(error instanceof RpcError) || ctx.signal.aborted) throw error
    return []
  })
  // Until a token is known, its amounts are shown in base units. Settlement does not wait for the token.
  if (answers.length === 0) return
  const reported = rows.map(({ token: address }, i) => {
    const decimals = decimalsOf(answers[2 * i + 1])
    const symbol = decimals === null ? null : symbolOf(ctx, answers[2 * i])
    return { chain_id: network.chainId, address, symbol, decimals, asked_at: ctx.now() }
  })
  await ctx.db
    .insertInto("tokens")
    .values(reported)
    .onConflict(conflict => conflict.doNothing())
    .execute()
}

function decimalsOf(answer: RpcResult | undefined): number | null {
  if (!answer?.ok || typeof answer.value !== "string" || !/^0x[0-9a-f]{64}$/i.test(answer.value)) return null
  const decimals = BigInt(answer.value)
  return decimals <= BigInt(MAX_DECIMALS) ? Number.parseInt(decimals.toString(), 10) : null
}

/**
 * Returns the symbol if it is short and plain; null if it is not, or if it is the symbol of a currency that we accept.
 */
function symbolOf(ctx: Context, answer: RpcResult | undefined): string | null {
  if (!answer?.ok) return null
  try {
    const [symbol] = decodeAbiParameters([{ type: "string" }], answer.value as Hex)
    const ours = ctx.chain.networks.some(({ token }) => token.symbol.toLowerCase() === symbol.toLowerCase())
    return SYMBOL.test(symbol) && !ours ? symbol : null
  } catch {
    return null
  }
}
