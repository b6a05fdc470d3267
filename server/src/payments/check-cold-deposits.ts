/**
 * Receiving addresses where nothing is for sale any more leave the scan of the logs, and are asked for their balance
 * instead: hourly for a day, then daily, 500 in a call. One that has more than we know of, what was paid out taken off, is scanned again.
 */
import { sql } from "kysely"
import { decodeFunctionResult, encodeFunctionData, erc20Abi } from "viem"
import { askAny } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import { multicall, readMulticall } from "../chain/multicall.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const ADDRESSES_A_CALL = 500
/** Addresses asked in one round: 20 calls. */
const ADDRESSES_A_ROUND = 10_000

/**
 * Takes addresses out of the scan that are no active paywall's and that nobody asked about lately; what they received is
 * known up to the last scan.
 */
export async function coolDeposits(ctx: Context, network: Network): Promise<void> {
  const now = ctx.now()
  await sql`update deposits d set hot = false, watched_number = c.block_number, cooled_at = ${now},
      check_at = ${new Date(now.getTime() + HOUR_MS)}
    from cursors c
    where d.chain_id = ${network.chainId} and c.chain_id = d.chain_id and d.hot and d.hot_until < ${now}
      and d.watched_number is null
      and not exists (select from paywall_versions v where v.deposit_id = d.id and v.until_at is null and v.active)
      and not exists (select from transfers t where t.deposit_id = d.id and t.state in ('seen', 'gone'))`.execute(
    ctx.db,
  )
}

/** Asks the balances of the cold addresses that are due, and puts those back into the scan that received something. */
export async function checkColdDeposits(ctx: Context, network: Network): Promise<void> {
  const now = ctx.now()
  const due = await sql<{ id: bigint; address: Address; known: bigint }>`
    select d.id, d.address, coalesce((select sum(t.value) from transfers t
        where t.deposit_id = d.id and t.token = ${network.token.address} and t.state <> 'gone'), 0)
      - coalesce((select sum(i.amount) from intents i where i.deposit_id = d.id and i.token = ${network.token.address}
        and i.lane = 'payout' and i.state in ('mined', 'final') and i.succeeded), 0) as known
    from deposits d where d.chain_id = ${network.chainId} and not d.hot and d.check_at <= ${now}
    order by d.check_at limit ${ADDRESSES_A_ROUND}`.execute(ctx.db)
  for (let start = 0; start < due.rows.length; start += ADDRESSES_A_CALL) {
    const part = due.rows.slice(start, start + ADDRESSES_A_CALL)
    const balances = await balancesOf(
      network,
      part.map(row => row.address),
      ctx.signal,
    )
    const received = part.filter((row, i) => (balances[i] ?? 0n) > row.known)
    // An address whose balance was not told stays due.
    const told = part.filter((_, i) => balances[i] !== undefined)
    if (told.length > 0)
      await scheduleChecks(
        ctx,
        told.map(row => row.id),
      )
    if (received.length > 0) {
      await ctx.db
        .updateTable("deposits")
        .set({ hot: true, hot_until: new Date(now.getTime() + HOUR_MS) })
        .where(
          "id",
          "in",
          received.map(row => row.id),
        )
        .execute()
      await ctx.wakes.wake("verify")
    }
  }
}

/**
 * When cold addresses are asked again: hourly while a session is open and for a day after what was sold there ended, then
 * daily; a session's no more after 30 days.
 */
async function scheduleChecks(ctx: Context, ids: readonly bigint[]): Promise<void> {
  const now = ctx.now().getTime()
  const [dayAgo, monthAgo, inAnHour, inADay] = [-DAY_MS, -30 * DAY_MS, HOUR_MS, DAY_MS].map(ms => new Date(now + ms))
  await sql`update deposits d set check_at = case
      when d.session_id is not null and e.ended_at < ${monthAgo} then null
      when coalesce(e.ended_at, ${new Date(now)}) > ${dayAgo} then ${inAnHour}::timestamptz
      else ${inADay}::timestamptz end
    from (select w.id, case when s.id is null then w.cooled_at
        when s.status in ('pending', 'verifying') then null
        else coalesce(s.confirmed_at, s.expires_at) end as ended_at
      from deposits w left join checkout_sessions s on s.id = w.session_id where w.id in (${sql.join(ids)})) as e
    where d.id = e.id`.execute(ctx.db)
}

/** Balances in the settlement token, undefined where the chain could not be asked. */
async function balancesOf(
  network: Network,
  addresses: readonly Address[],
  signal: AbortSignal,
): Promise<(bigint | undefined)[]> {
  const functionName = "balanceOf"
  const reads = addresses.map(address => ({
    to: network.token.address,
    data: encodeFunctionData({ abi: erc20Abi, functionName, args: [address] }),
  }))
  const [result] = await askAny(network.endpoints, [multicall(reads)], signal)
  if (!result?.ok) return []
  return readMulticall(result.value).map(data =>
    data ? decodeFunctionResult({ abi: erc20Abi, functionName, data }) : undefined,
  )
}
