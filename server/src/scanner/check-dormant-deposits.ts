/**
 * Takes receiving addresses that are not in use out of the scan of the logs, and reads their balances instead: hourly
 * for a day, then daily, 500 in a call. If an address holds another sum than its rows say, it is scanned again.
 */
import { sql } from "kysely"
import { decodeFunctionResult, encodeFunctionData, erc20Abi } from "viem"
import { votesNeeded } from "../chain/agreement.ts"
import { ask, awake } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import { multicall, readMulticall } from "../chain/multicall.ts"
import type { Network } from "../chain/networks.ts"
import type { RpcResult } from "../chain/rpc.ts"
import type { Context } from "../context.ts"
import { depositSums } from "../deposits/balance.ts"

/**
 * SQL: whether something is for sale at a deposit. It uses an index of its own, because a join would read the versions
 * of all paywalls.
 */
const isActive = (deposit: "d" | "w") =>
  sql<boolean>`select v.active from paywall_versions v
    where v.deposit_id = ${sql.ref(`${deposit}.id`)} and v.until_at is null limit 1`

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const ADDRESSES_PER_CALL = 500
/** Wait before a balance that too few endpoints reported is read again. */
const ALONE_MS = 300_000
/** How many blocks an endpoint that reports balances may be behind the scan. */
const LAG_BLOCKS = 600
/** How many addresses one round makes dormant, and how many it reads, in 20 calls. */
const ADDRESSES_PER_ROUND = 10_000

/**
 * Takes addresses that nobody asked about recently out of the scan. An active paywall's address leaves it only if it
 * was neither asked about nor paid in a day. So the cost of the scan depends on the addresses in use, not on all that
 * were ever made. What they received is known up to the last scan.
 */
export async function makeDepositsDormant(ctx: Context, network: Network): Promise<void> {
  const now = ctx.now()
  const dayAgo = new Date(now.getTime() - DAY_MS)
  await sql`update deposits d set watched = false, watched_number = c.block_number, dormant_since = ${now},
      check_at = ${new Date(now.getTime() + HOUR_MS)}
    from cursors c
    where c.chain_id = d.chain_id and d.id in (select d.id from deposits d where d.chain_id = ${network.chainId} and d.watched and d.watched_until < ${now}
      and d.watched_number is null
      and (d.watched_until < ${dayAgo} or (${isActive("d")}) is not true)
      and not exists (select from transfers t where t.deposit_id = d.id and (t.state in ('seen', 'gone')
        or (t.created_at > ${dayAgo} and (${isActive("d")}))))
      order by d.watched_until limit ${ADDRESSES_PER_ROUND})`.execute(ctx.db)
}

/**
 * Reads the balances of the dormant addresses that are due. An address whose balance differs from its rows is scanned
 * again: it received more, or money left it that is not recorded yet, which could hide what it receives.
 */
export async function checkDormantDeposits(ctx: Context, network: Network): Promise<void> {
  const now = ctx.now()
  const due = await ctx.db
    .selectFrom("deposits")
    .select(["id", "address"])
    .where("chain_id", "=", network.chainId)
    .where("watched", "=", false)
    .where("check_at", "<=", now)
    .orderBy("check_at")
    .limit(ADDRESSES_PER_ROUND)
    .execute()
  for (let start = 0; start < due.length; start += ADDRESSES_PER_CALL) {
    const part = due.slice(start, start + ADDRESSES_PER_CALL)
    const ids = part.map(row => row.id)
    const sums = await depositSums(ctx, network.token.address, ids)
    const balances = await balancesOf(network, part, ctx.signal)
    const differs = part.filter(({ id }, i) => {
      const { came, went } = sums.get(id) ?? { came: 0n, went: 0n }
      return balances[i]?.some(balance => balance !== came - went)
    })
    // An address whose balance no endpoint reported stays due; one that too few endpoints reported is read again soon.
    const enough = votesNeeded(network.endpoints.length)
    const reportedBy = (i: number) => balances[i]?.length ?? 0
    const reported = ids.filter((_, i) => reportedBy(i) >= enough)
    if (reported.length > 0) await scheduleChecks(ctx, reported)
    const alone = ids.filter((_, i) => reportedBy(i) > 0 && reportedBy(i) < enough)
    if (alone.length > 0) {
      const check_at = new Date(now.getTime() + ALONE_MS)
      await ctx.db.updateTable("deposits").set({ check_at }).where("id", "in", alone).execute()
    }
    const quiet = part.filter((row, i) => !differs.includes(row) && reportedBy(i) >= enough)
    await knownUpTo(
      ctx,
      network,
      quiet.map(row => row.id),
    )
    if (differs.length === 0) continue
    await ctx.db
      .updateTable("deposits")
      .set({ watched: true, watched_until: new Date(now.getTime() + HOUR_MS) })
      .where(
        "id",
        "in",
        differs.map(row => row.id),
      )
      .execute()
    await ctx.wakes.wake("verify")
  }
}

/**
 * An address that holds exactly what its rows say has received nothing. If it is watched again, its scan starts here,
 * and not months earlier.
 */
async function knownUpTo(ctx: Context, { chainId }: Network, ids: readonly bigint[]): Promise<void> {
  if (ids.length === 0) return
  await sql`update deposits d set watched_number = greatest(d.watched_number, c.block_number - ${LAG_BLOCKS}::bigint)
    from cursors c where c.chain_id = ${chainId} and d.id in (${sql.join(ids)}) and not d.watched`.execute(ctx.db)
}

/**
 * Schedules the next check of dormant addresses: hourly while a session is open or a paywall active, and for a day
 * after that ended, then daily; a session's address is not checked any more after 30 days.
 */
async function scheduleChecks(ctx: Context, ids: readonly bigint[]): Promise<void> {
  const now = ctx.now().getTime()
  const [dayAgo, monthAgo, inAnHour, inADay] = [-DAY_MS, -30 * DAY_MS, HOUR_MS, DAY_MS].map(ms => new Date(now + ms))
  await sql`update deposits d set check_at = case
      when e.is_session and e.ended_at < ${monthAgo} then null
      when coalesce(e.ended_at, ${new Date(now)}) > ${dayAgo} then ${inAnHour}::timestamptz
      else ${inADay}::timestamptz end
    from (select w.id, s.id is not null as is_session, case when s.id is null then case when (${isActive("w")}) then null else w.dormant_since end
        when s.status in ('pending', 'verifying') then null
        else coalesce(s.confirmed_at, s.expires_at) end as ended_at
      from deposits w left join checkout_sessions s on s.id = w.resource_id where w.id in (${sql.join(ids)})) as e
    where d.id = e.id`.execute(ctx.db)
}

/**
 * Returns balances in the settlement token as each endpoint reports them. One endpoint is not enough: it may lag, or
 * hide what was paid.
 */
async function balancesOf(
  network: Network,
  deposits: readonly { address: Address }[],
  signal: AbortSignal,
): Promise<bigint[][]> {
  const functionName = "balanceOf"
  const reads = deposits.map(({ address }) => ({
    to: network.token.address,
    data: encodeFunctionData({ abi: erc20Abi, functionName, args: [address] }),
  }))
  const answers = await Promise.all(
    awake(network.endpoints).map(async endpoint => {
      const [result] = (await ask(endpoint, [multicall(reads)], signal)) ?? []
      return readBalances(result)
    }),
  )
  return deposits.map((_, i) => answers.flatMap(balances => balances[i] ?? []))
}

/** A balance that can't be read counts as not reported. */
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
