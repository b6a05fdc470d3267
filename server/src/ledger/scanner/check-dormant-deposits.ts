/**
 * Takes unused receiving addresses out of the log scan, and reads their balances instead: hourly for a day, then daily,
 * with 500 addresses per call. An address whose balance differs from its rows is scanned again.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { wasAskedFor } from "../deposits/make-deposits.ts"
import { type Crowds, crowdsAmong, isCrowded, putAway } from "../deposits/put-away.ts"
import { depositSums } from "../deposits/sum-deposits.ts"
import { ADDRESSES_PER_CALL, compareBalances, type Said } from "./read-balances.ts"

/**
 * SQL: whether something is for sale at a deposit. A subquery uses its own index, while a join would read the versions
 * of all paywalls.
 */
const isActive = (deposit: "d" | "w") =>
  sql<boolean>`select v.active from paywall_versions v
    where v.deposit_id = ${sql.ref(`${deposit}.id`)} and v.until_at is null limit 1`

const HOUR_MS = 3_600_000
/** How long after the watch of a page has ended a payment is still expected. */
const EXPECTED_MS = 12 * HOUR_MS
const DAY_MS = 24 * HOUR_MS
/** How long a balance that too few endpoints reported waits until it is read again. */
const ALONE_MS = 300_000
/** How many blocks an endpoint that reports balances may lag behind the scan. */
const LAG_BLOCKS = 600
/** How many addresses one round reads, in 20 calls. */
const ADDRESSES_PER_ROUND = 10_000
/**
 * How many addresses one round makes dormant. Fewer addresses than this can be created in the minute between two
 * rounds.
 */
const LEAVING_PER_ROUND = 50_000
/**
 * How many addresses one round watches again although too few endpoints report a different balance. An endpoint that
 * lies about all addresses must not put all of them into the scan.
 */
const DOUBTS_PER_ROUND = 100
/**
 * How many unpaid checkouts of one link, and of all links of a merchant, are in the scan. Anyone can open checkouts,
 * and each adds to the cost of every round.
 */
const MAX_OF_LINK = 2_000
const MAX_OF_MERCHANT = 10_000

/**
 * Takes addresses out of the scan if nobody asked about them recently. The address of an active paywall leaves the scan
 * only if nobody asked about it or paid to it for a day. So the scan's cost depends on the addresses in use, not on all
 * that were ever created. The transfers of these addresses are known up to the last scan.
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
      order by d.watched_until limit ${LEAVING_PER_ROUND})`.execute(ctx.db)
}

/**
 * Takes unpaid checkouts out of the scan if a link or merchant has too many open ones. Checkouts that nobody has
 * requested since their creation leave first, then those requested least recently. A request puts a checkout back. A
 * submitted hash is verified by its receipt, without the scan. An expired checkout is scanned once more, and leaves the
 * scan after that.
 */
export async function thinOut(
  ctx: Context,
  { chainId }: Network,
  { ofLink = MAX_OF_LINK, ofMerchant = MAX_OF_MERCHANT } = {},
): Promise<void> {
  const now = ctx.now()
  const { rows } = await sql`select from deposits where chain_id = ${chainId} and watched
    offset ${Math.min(ofLink, ofMerchant)} limit 1`.execute(ctx.db)
  if (rows.length === 0) return
  const order = sql`order by ${wasAskedFor("d")} desc, d.watched_until desc, d.id desc`
  await sql`update deposits d set watched = false, watched_number = coalesce(d.watched_number, c.block_number),
      dormant_since = ${now}, check_at = ${new Date(now.getTime() + HOUR_MS)}
    from cursors c, (select d.id, row_number() over (partition by s.link_id ${order}) as of_link,
        row_number() over (partition by s.merchant_id ${order}) as of_merchant
      from deposits d join checkout_sessions s on s.id = d.resource_id
      where d.chain_id = ${chainId} and d.watched and s.link_id is not null and s.status in ('pending', 'verifying')
        and s.expires_at > ${now} and not exists (select from transfers t where t.deposit_id = d.id)
        and not exists (select from payouts p where p.deposit_id = d.id)) ranked
    where c.chain_id = d.chain_id and d.id = ranked.id and (of_link > ${ofLink} or of_merchant > ${ofMerchant}) and d.watched`.execute(
    ctx.db,
  )
}

/**
 * Reads the balances of due dormant addresses. An address whose balance differs from its rows is scanned again. Such an
 * address received more money, or an outflow that is not recorded yet could hide what the address received. An old
 * unpaid checkout with an empty address is put away.
 */
export async function checkDormantDeposits(
  ctx: Context,
  network: Network,
  most: Parameters<typeof crowdsAmong>[2] = {},
): Promise<void> {
  const due = await ctx.db
    .selectFrom("deposits")
    .select(["id", "address"])
    .where("chain_id", "=", network.chainId)
    .where("watched", "=", false)
    .where("check_at", "<=", ctx.now())
    .orderBy("check_at")
    .limit(ADDRESSES_PER_ROUND)
    .execute()
  if (due.length === 0) return
  const crowds = await crowdsAmong(
    ctx,
    due.map(({ id }) => id),
    most,
  )
  let doubtsLeft = DOUBTS_PER_ROUND
  for (let start = 0; start < due.length; start += ADDRESSES_PER_CALL) {
    const part = due.slice(start, start + ADDRESSES_PER_CALL)
    const said = await saidOf(ctx, network, part)
    const idsOf = (...which: Said[]) => part.flatMap(({ id }, i) => (which.includes(said[i] ?? "nothing") ? [id] : []))
    // An address whose balance no endpoint reported stays due. If only too few endpoints reported its balance, the
    // address is read again soon.
    await scheduleChecks(ctx, idsOf("same", "other", "doubtful"), crowds)
    await checkSoon(ctx, idsOf("alone"))
    await knownUpTo(ctx, network, idsOf("same"))
    await putAway(ctx, idsOf("same"), crowds)
    const doubts = idsOf("doubtful").slice(0, doubtsLeft)
    doubtsLeft -= doubts.length
    await watchAgain(ctx, [...idsOf("other"), ...doubts])
  }
}

async function saidOf(
  ctx: Context,
  network: Network,
  deposits: readonly { id: bigint; address: Address }[],
): Promise<Said[]> {
  const sums = await depositSums(
    ctx,
    network.token.address,
    deposits.map(({ id }) => id),
  )
  const expected = deposits.map(({ id, address }) => {
    const { came, went } = sums.get(id) ?? { came: 0n, went: 0n }
    return { address, balance: came - went }
  })
  return await compareBalances(ctx, network, expected)
}

async function checkSoon(ctx: Context, ids: readonly bigint[]): Promise<void> {
  if (ids.length === 0) return
  const check_at = new Date(ctx.now().getTime() + ALONE_MS)
  await sql`update deposits set check_at = ${check_at} where id = any(${sqlArray("bigint", ids)})`.execute(ctx.db)
}

/** Puts addresses back into the log scan. */
async function watchAgain(ctx: Context, ids: readonly bigint[]): Promise<void> {
  if (ids.length === 0) return
  const until = new Date(ctx.now().getTime() + HOUR_MS)
  await sql`update deposits set watched = true, watched_until = ${until} where id = any(${sqlArray("bigint", ids)})`.execute(
    ctx.db,
  )
  await ctx.wakes.wake("verify")
}

/**
 * Records that an address has received nothing more, because it holds exactly what its rows say. If the address is
 * watched again, its scan starts at this block, and not months earlier.
 */
async function knownUpTo(ctx: Context, { chainId }: Network, ids: readonly bigint[]): Promise<void> {
  if (ids.length === 0) return
  await sql`update deposits d set watched_number = greatest(d.watched_number, c.block_number - ${LAG_BLOCKS}::bigint)
    from cursors c where c.chain_id = ${chainId} and d.id = any(${sqlArray("bigint", ids)}) and not d.watched`.execute(
    ctx.db,
  )
}

/**
 * Schedules the next check of dormant addresses: hourly while a session is open or a paywall active and for a day
 * afterwards, then daily. Sessions of a crowded link are checked daily from the start. The exception is a session
 * opened in the last hours, because exchanges pay slowly and opening is rate-limited. A paid session is not checked
 * after 30 days: the daily comparison reads its balance.
 */
async function scheduleChecks(ctx: Context, ids: readonly bigint[], crowds: Crowds): Promise<void> {
  if (ids.length === 0) return
  const now = ctx.now().getTime()
  const expectedSince = new Date(now - EXPECTED_MS)
  const [dayAgo, monthAgo, inAnHour, inADay] = [-DAY_MS, -30 * DAY_MS, HOUR_MS, DAY_MS].map(ms => new Date(now + ms))
  await sql`update deposits set check_at = case
      when e.is_session and e.ended_at < ${monthAgo} and exists (select from deposit_books b where b.deposit_id = e.id) then null
      when e.is_crowded and not e.is_expected then ${inADay}::timestamptz
      when coalesce(e.ended_at, ${new Date(now)}) > ${dayAgo} then ${inAnHour}::timestamptz
      else ${inADay}::timestamptz end
    from (select w.id, s.id is not null as is_session, coalesce(${isCrowded(crowds)}, false) as is_crowded,
        (s.status in ('pending', 'verifying') and w.watched_until > ${expectedSince} and ${wasAskedFor("w")}) as is_expected,
        case when s.id is null then case when (${isActive("w")}) then null else w.dormant_since end
        when s.status in ('pending', 'verifying') then null
        else coalesce(s.confirmed_at, s.expires_at) end as ended_at
      from deposits w left join checkout_sessions s on s.id = w.resource_id
      where w.id = any(${sqlArray("bigint", ids)})) as e
    where deposits.id = e.id`.execute(ctx.db)
}
