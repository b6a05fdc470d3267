/**
 * The daily caps: how much one key, or all keys of a merchant, may send back in 24 hours, and how much a support member
 * may decide about. The deciding transaction counts under a lock on the merchant's row, so concurrent requests can't
 * exceed a cap together. Decisions that failed, were withdrawn or are open again don't count. The states of decisions
 * are read each time and never stored.
 */
import { randomUUID } from "node:crypto"
import { type RawBuilder, sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import { ApiError } from "../../platform/errors.ts"
import { type ApiKey, keyNeeded, type Member } from "../../platform/http/authenticate.ts"
import { isLimited } from "../../platform/http/rights.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { keyHolds } from "./manage-api-keys.ts"

type Kind = "refund" | "return" | "accept" | "capture" | "void"

/** Who decides: the key or the member of a request. */
interface Decider {
  apiKey: ApiKey | undefined
  member: Member | undefined
}

/** Amounts are counted in this many decimals, because a token's decimals differ between networks. */
const DECIMALS = 18
const WHOLE = 10n ** 18n
const WINDOW_MS = 86_400_000

const called = (id: string) => sql<Sent>`select p.chain_id, p.token, p.amount, t.symbol, t.decimals from payouts p
  left join tokens t on (t.chain_id, t.address) = (p.chain_id, p.token) where p.id = ${id}::uuid`

/**
 * Queries the amount of a decision by id: of a refund, of a payment or its surplus (by the payment's id), or of an
 * escrow call.
 */
const sent: Record<Kind, (id: string) => RawBuilder<Sent>> = {
  refund: id => sql`select e.chain_id, e.token, r.amount, t.symbol, t.decimals from refunds r
    join escrows e on e.session_id = r.session_id left join tokens t on (t.chain_id, t.address) = (e.chain_id, e.token)
    where r.id = ${id}`,
  return:
    id => sql`select p.chain_id, p.token, case when p.status = 'returned' then p.amount else u.amount end as amount,
    t.symbol, t.decimals from payments p left join surpluses u on u.payment_id = p.id
    left join tokens t on (t.chain_id, t.address) = (p.chain_id, p.token) where p.id = ${id}`,
  accept:
    id => sql`select p.chain_id, p.token, case when u.state = 'accepted' then u.amount else p.amount end as amount,
    t.symbol, t.decimals from payments p left join surpluses u on u.payment_id = p.id
    left join tokens t on (t.chain_id, t.address) = (p.chain_id, p.token) where p.id = ${id}`,
  capture: called,
  void: called,
}

interface Sent {
  chain_id: number
  token: string
  amount: bigint
  decimals: number | null
}

/** Locks the merchant's row; the caps are counted under this lock. Call it before any other lock of the transaction. */
export async function lockCaps(ctx: TxContext, { apiKey, member }: Decider): Promise<void> {
  const capped = apiKey ?? limitedMember(member)
  if (capped) await lockMerchant(ctx.db, capped.merchantId)
}

const limitedMember = (member: Member | undefined): Member | undefined =>
  member && isLimited(member.role, "money") ? member : undefined

/**
 * Counts what a key, or a member with a limit, just decided; other people have no cap. Call it under {@link lockCaps},
 * in the deciding transaction. Throws `DAILY_LIMIT_REACHED`, with the amount that is left and the time from which this
 * decision fits.
 */
export async function countSpend(ctx: TxContext, { apiKey, member }: Decider, kind: Kind, id: string): Promise<void> {
  const limited = limitedMember(member)
  if (limited) {
    const spend = await spendOf(ctx, kind, id)
    await checkCap(ctx, await capOfMember(ctx, limited), spend)
    return await write(ctx, limited.merchantId, { person_id: limited.personId }, spend)
  }
  // If a key's return of a payment failed, the next return counts against whoever makes it, and not against the key.
  if (!apiKey) return kind === "return" ? await forget(ctx, id) : undefined
  if (kind !== "refund" && kind !== "return") return
  const spend = await spendOf(ctx, kind, id)
  for (const cap of await capsOf(ctx, apiKey, kind)) await checkCap(ctx, cap, spend)
  await write(ctx, apiKey.merchantId, { key_id: apiKey.id }, spend)
}

const forget = async (ctx: TxContext, paymentId: string): Promise<void> => {
  const { db } = ctx
  const merchant = db.selectFrom("payments").select("merchant_id").where("id", "=", paymentId)
  await db
    .deleteFrom("key_spends")
    .where("merchant_id", "=", merchant)
    .where("kind", "=", "return")
    .where("object_id", "=", paymentId)
    .execute()
}

interface Spend {
  kind: Kind
  id: string
  token: string
  /** In units of 10⁻¹⁸ tokens. */
  amount: bigint
}

async function spendOf(ctx: TxContext, kind: Kind, id: string): Promise<Spend> {
  const { rows } = await sent[kind](id).execute(ctx.db)
  const [row] = rows
  if (!row) throw new Error(`the ${kind} ${id} was made and is not there`)
  const { chain_id, token, amount } = row
  const known = ctx.chain.networks.find(({ chainId }) => chainId === chain_id)?.token
  if (known?.address === token) return { kind, id, token: known.symbol, amount: scaled(amount, known.decimals) }
  // A contract chooses its symbol freely, so its address identifies the token. Unknown decimals are read as zero, the
  // strictest reading.
  return { kind, id, token: `eip155:${chain_id}/${token}`, amount: scaled(amount, row.decimals ?? 0) }
}

/** Rescales an amount to 18 decimals, rounded up. */
function scaled(amount: bigint, decimals: number): bigint {
  if (decimals <= DECIMALS) return amount * 10n ** BigInt(DECIMALS - decimals)
  const unit = 10n ** BigInt(decimals - DECIMALS)
  return (amount + unit - 1n) / unit
}

interface Cap {
  merchantId: string
  /** SQL: which spends count against the cap. */
  counts: RawBuilder<unknown>
  path: string
  /** Whole tokens. */
  perDay: number
  /** The start of a sentence that says who may do how much, and what to do if a spend never fits. */
  words: string
  otherwise: string
}

/** Whether caps limit both the refunds and the returns of a key: its own caps, or those of all keys. */
export async function isCapped(ctx: TxContext, { id, merchantId }: ApiKey): Promise<boolean> {
  const { rows } = await sql<{ capped: boolean }>`
    select coalesce(k.refund_per_day, m.refund_per_day) is not null
      and coalesce(k.return_per_day, m.return_per_day) is not null as capped
    from api_keys k join merchants m on m.id = k.merchant_id where k.id = ${id} and k.merchant_id = ${merchantId}`.execute(
    ctx.db,
  )
  return rows[0]?.capped ?? false
}

/** The caps that currently apply to a key; throws `UNAUTHORIZED` if the key has ended since the request started. */
async function capsOf(ctx: TxContext, { id, merchantId }: ApiKey, kind: "refund" | "return"): Promise<Cap[]> {
  const column = sql.raw(`${kind}_per_day`)
  const { rows } = await sql<{ own: number | null; all: number | null }>`
    select k.${column} as own, m.${column} as all from api_keys k join merchants m on m.id = k.merchant_id
    where k.id = ${id} and k.merchant_id = ${merchantId} and ${keyHolds(ctx)}`.execute(ctx.db)
  const [row] = rows
  if (!row) throw keyNeeded()
  const common = { merchantId, otherwise: "a person can do it, or raise the limit" }
  const own = { ...common, counts: sql`s.key_id = ${id} and s.kind = ${kind}`, path: `limits.${kind}PerDay` }
  const all = { ...common, counts: sql`s.key_id is not null and s.kind = ${kind}`, path: `keyLimits.${kind}PerDay` }
  const together = "All API keys of this merchant together"
  return [
    ...(row.own === null ? [] : [{ ...own, perDay: row.own, words: `This API key may ${kind}` }]),
    ...(row.all === null ? [] : [{ ...all, perDay: row.all, words: `${together} may ${kind}` }]),
  ]
}

/** The current cap of a member with a limit. All kinds of decisions count against this cap. */
async function capOfMember(ctx: TxContext, { merchantId, personId }: Member): Promise<Cap> {
  const { money_per_day: perDay } = await ctx.db
    .selectFrom("members")
    .select("money_per_day")
    .where("person_id", "=", personId)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirstOrThrow()
  const counts = sql`s.person_id = ${personId}`
  const words = {
    words: "You may decide about",
    otherwise: "another member can do it, or an owner can raise your limit",
  }
  return { merchantId, counts, path: "moneyPerDay", perDay, ...words }
}

/** SQL: the spends that count against a cap in this token, except this spend itself. */
const counting = (ctx: TxContext, { merchantId, counts }: Cap, { kind, token, id }: Spend) => sql`
  from key_spends s
    left join refunds r on s.kind = 'refund' and r.id = s.object_id
    left join payments p on s.kind = 'return' and p.id = s.object_id
    left join surpluses u on u.payment_id = p.id
    left join payouts c on c.id = case when s.kind in ('capture', 'void') then s.object_id::uuid end
  where s.merchant_id = ${merchantId} and s.token = ${token} and not (s.kind = ${kind} and s.object_id = ${id})
    and s.created_at > ${since(ctx)} and ${counts}
    and case s.kind when 'refund' then r.status <> 'failed' when 'return' then p.status = 'returned' or u.state = 'returned'
      when 'accept' then true else c.state not in ('cancelled', 'reverted') end`

const since = (ctx: TxContext): Date => new Date(ctx.now().getTime() - WINDOW_MS)

async function checkCap(ctx: TxContext, cap: Cap, spend: Spend): Promise<void> {
  const counted = counting(ctx, cap, spend)
  const { rows } = await sql<{ used: bigint }>`
    select coalesce(sum(s.amount), 0)::numeric(1000, 0) as used ${counted}`.execute(ctx.db)
  const most = BigInt(cap.perDay) * WHOLE
  const left = most - (rows[0]?.used ?? 0n)
  if (spend.amount <= left) return
  const free = left > 0n ? left : 0n
  const fits = spend.amount > most ? undefined : await fittingAt(ctx, counted, spend.amount - left)
  const when = fits
    ? `The limit allows this request from ${fits.toISOString()} on.`
    : `This request exceeds the whole limit, so waiting does not help: ${cap.otherwise}.`
  const said = `${cap.words} up to ${cap.perDay} of each token in 24 hours, and ${formatAmount(free, DECIMALS)} are left. ${when}`
  throw new ApiError("DAILY_LIMIT_REACHED", [{ path: cap.path, message: said }], said)
}

/** The time when enough spends have left the window for `needed` more to fit. */
async function fittingAt(ctx: TxContext, counted: RawBuilder<unknown>, needed: bigint): Promise<Date | undefined> {
  const { rows } = await sql<{ created_at: Date }>`
    select created_at from (
      select s.created_at, sum(s.amount) over (order by s.created_at, s.object_id) as freed ${counted}) f
    where freed >= ${needed} order by created_at limit 1`.execute(ctx.db)
  return rows[0] && new Date(rows[0].created_at.getTime() + WINDOW_MS)
}

/** Writes a spend, and deletes those that have left the window. */
async function write(
  ctx: TxContext,
  merchantId: string,
  by: { key_id: string } | { person_id: string },
  { kind, token, amount, id }: Spend,
): Promise<void> {
  const fields = { key_id: null, person_id: null, ...by, token, amount, created_at: ctx.now() }
  await ctx.db
    .deleteFrom("key_spends")
    .where("merchant_id", "=", merchantId)
    .where("created_at", "<=", since(ctx))
    .execute()
  // A payment can be accepted twice: first itself, and later its surplus.
  const object_id = kind === "accept" ? randomUUID() : id
  await ctx.db
    .insertInto("key_spends")
    .values({ merchant_id: merchantId, kind, object_id, ...fields })
    .onConflict(conflict => conflict.columns(["merchant_id", "kind", "object_id"]).doUpdateSet(fields))
    .execute()
}
