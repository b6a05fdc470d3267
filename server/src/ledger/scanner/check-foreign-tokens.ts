/**
 * Asks each token in which nothing is sold for the balance of a receiving address. Only tokens with a balance are
 * listed, so a contract that emits a Transfer and moves nothing costs one row for a minute. Nothing else of a token is
 * read, because anyone may have written its name and symbol.
 */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import { reachedBy, votesNeeded } from "../../platform/chain/agreement.ts"
import { ask, awake } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { hexNumber, type RpcResult } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"

/**
 * How many balances one round reads, in one request per endpoint. With the gas below, the answers of the tokens take at
 * most 15 MB.
 */
const BALANCES_PER_ROUND = 25
/** The gas to read a balance. This much gas is enough, and it bounds what a token can do. */
const GAS = 200_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const YEAR_MS = 366 * DAY_MS

/** Reads the balances that are due, unknown ones first. Deletes rows that hold nothing or are a year old. */
export async function askBalances(ctx: Context, network: Network): Promise<void> {
  const now = ctx.now()
  const ago = (ms: number) => new Date(now.getTime() - ms)
  await sql`delete from foreign_tokens where chain_id = ${network.chainId}
    and (found_at < ${ago(YEAR_MS)} or (balance is null and found_at < ${ago(DAY_MS)}))`.execute(ctx.db)
  const { rows } = await sql<{ id: bigint; token: Address; address: Address }>`
    select f.id, f.token, d.address from foreign_tokens f join deposits d on d.id = f.deposit_id
    where f.chain_id = ${network.chainId} and f.check_at <= ${now}
    order by f.balance is not null, f.check_at, f.id limit ${BALANCES_PER_ROUND}`.execute(ctx.db)
  if (rows.length === 0) return
  const balances = await balancesOf(network, rows, ctx.signal)
  const needed = votesNeeded(network.endpoints.length)
  for (const [i, { id }] of rows.entries()) {
    const said = balances[i] ?? []
    // One endpoint alone can neither list nor hide a token.
    if (said.filter(balance => balance === 0n).length >= needed) {
      await ctx.db.deleteFrom("foreign_tokens").where("id", "=", id).execute()
      continue
    }
    const balance = reachedBy(said, needed) || undefined
    const check_at = new Date(now.getTime() + (balance ? DAY_MS : HOUR_MS))
    await ctx.db
      .updateTable("foreign_tokens")
      .set({ check_at, ...(balance ? { balance } : {}) })
      .where("id", "=", id)
      .execute()
  }
}

async function balancesOf(
  network: Network,
  rows: readonly { token: Address; address: Address }[],
  signal: AbortSignal,
): Promise<bigint[][]> {
  // Each read is a separate call, because in one shared call a token that burns its gas would spoil the other answers.
  const calls = rows.map(({ token, address }) => {
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [address] })
    return { method: "eth_call", params: [{ to: token, data, gas: hexNumber(GAS) }, "latest"] }
  })
  const answers = await Promise.all(awake(network.endpoints).map(endpoint => ask(endpoint, calls, signal)))
  return rows.map((_, i) => answers.flatMap(results => balanceIn(results?.[i]) ?? []))
}

/**
 * Reads a balance. Returns 0 if the contract fails or answers with anything but an amount, and undefined if the node
 * does not respond.
 */
function balanceIn(result: RpcResult | undefined): bigint | undefined {
  if (!result) return undefined
  if (!result.ok) return /revert|out of gas|opcode|invalid jump|stack/i.test(result.error) ? 0n : undefined
  if (typeof result.value !== "string" || !/^0x[0-9a-f]{64}$/i.test(result.value)) return 0n
  return BigInt(result.value)
}
