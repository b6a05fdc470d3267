/**
 * The caps of API keys: how much of a token a key, and all keys of a merchant together, may send back in 24 hours. Each refund
 * and return that a key asks for is counted in the transaction that makes it, under the merchant's row, so that requests at the same
 * time can't exceed a cap together. What failed, was withdrawn, or is open again does not count: that is read, never kept.
 */
import { type RawBuilder, sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import { ApiError } from "../../platform/errors.ts"
import { type ApiKey, keyNeeded } from "../../platform/http/authenticate.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { keyHolds } from "./manage-api-keys.ts"

type Kind = "refund" | "return"

/** Amounts are counted in this many decimals, because a token has others on each network. */
const DECIMALS = 18
const WHOLE = 10n ** 18n
const WINDOW_MS = 86_400_000

/** What is sent back: a refund by its id, or a payment, or the surplus of one, by the payment's. */
const sent: Record<Kind, (id: string) => RawBuilder<Sent>> = {
  refund: id => sql`select e.chain_id, e.token, r.amount, t.symbol, t.decimals from refunds r
    join escrows e on e.session_id = r.session_id left join tokens t on (t.chain_id, t.address) = (e.chain_id, e.token)
    where r.id = ${id}`,
  return:
    id => sql`select p.chain_id, p.token, case when p.status = 'returned' then p.amount else u.amount end as amount,
    t.symbol, t.decimals from payments p left join surpluses u on u.payment_id = p.id
    left join tokens t on (t.chain_id, t.address) = (p.chain_id, p.token) where p.id = ${id}`,
}

interface Sent {
  chain_id: number
  token: string
  amount: bigint
  decimals: number | null
}

/** Locks what the caps of a key are counted under. Call it before any other lock of the transaction; nothing for a person. */
export async function lockCaps(ctx: TxContext, apiKey: ApiKey | undefined): Promise<void> {
  if (apiKey) await lockMerchant(ctx.db, apiKey.merchantId)
}

/**
 * Counts what was just made on behalf of a key, or of a person, whom no cap holds. Call it under {@link lockCaps}, in the transaction
 * that made it. Throws `DAILY_LIMIT_REACHED`, with what is left and from when this one fits.
 */
export async function countSpend(ctx: TxContext, apiKey: ApiKey | undefined, kind: Kind, id: string): Promise<void> {
  // A payment that a key returned, whose return failed, counts for whoever returns it again.
  if (!apiKey) return kind === "return" ? await forget(ctx, id) : undefined
  const spend = await spendOf(ctx, kind, id)
  for (const cap of await capsOf(ctx, apiKey, kind)) await checkCap(ctx, apiKey, cap, spend)
  await write(ctx, apiKey, spend)
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
  /** In units of 10⁻¹⁸ of the token. */
  amount: bigint
}

async function spendOf(ctx: TxContext, kind: Kind, id: string): Promise<Spend> {
  const { rows } = await sent[kind](id).execute(ctx.db)
  const [row] = rows
  if (!row) throw new Error(`the ${kind} ${id} was made and is not there`)
  const { chain_id, token, amount } = row
  const known = ctx.chain.networks.find(({ chainId }) => chainId === chain_id)?.token
  if (known?.address === token) return { kind, id, token: known.symbol, amount: scaled(amount, known.decimals) }
  // Its contract chooses the symbol, so it counts by its address. Without decimals it counts as if it had none, which is the most.
  return { kind, id, token: `eip155:${chain_id}/${token}`, amount: scaled(amount, row.decimals ?? 0) }
}

/** Rounds up. */
function scaled(amount: bigint, decimals: number): bigint {
  if (decimals <= DECIMALS) return amount * 10n ** BigInt(DECIMALS - decimals)
  const unit = 10n ** BigInt(decimals - DECIMALS)
  return (amount + unit - 1n) / unit
}

interface Cap {
  /** Of one key, or of all of the merchant's. */
  keyId: string | undefined
  path: string
  /** Whole tokens. */
  perDay: number
}

/** The caps that hold a key now; throws `UNAUTHORIZED` where the key ended since the request began. */
async function capsOf(ctx: TxContext, { id, merchantId }: ApiKey, kind: Kind): Promise<Cap[]> {
  const column = sql.raw(`${kind}_per_day`)
  const { rows } = await sql<{ own: number | null; all: number | null }>`
    select k.${column} as own, m.${column} as all from api_keys k join merchants m on m.id = k.merchant_id
    where k.id = ${id} and k.merchant_id = ${merchantId} and ${keyHolds(ctx)}`.execute(ctx.db)
  const [row] = rows
  if (!row) throw keyNeeded()
  const path = `limits.${kind}PerDay`
  return [
    ...(row.own === null ? [] : [{ keyId: id, path, perDay: row.own }]),
    ...(row.all === null ? [] : [{ keyId: undefined, path: `keyLimits.${kind}PerDay`, perDay: row.all }]),
  ]
}

/** What counts of a merchant's keys, or of one key, in this token. */
const counting = (ctx: TxContext, { merchantId }: ApiKey, { keyId }: Cap, { kind, token, id }: Spend) => sql`
  from key_spends s
    left join refunds r on s.kind = 'refund' and r.id = s.object_id
    left join payments p on s.kind = 'return' and p.id = s.object_id
    left join surpluses u on u.payment_id = p.id
  where s.merchant_id = ${merchantId} and s.kind = ${kind} and s.token = ${token} and s.object_id <> ${id}
    and s.created_at > ${since(ctx)} and (${keyId === undefined} or s.key_id = ${keyId ?? ""})
    and case s.kind when 'refund' then r.status <> 'failed' else p.status = 'returned' or u.state = 'returned' end`

const since = (ctx: TxContext): Date => new Date(ctx.now().getTime() - WINDOW_MS)

async function checkCap(ctx: TxContext, apiKey: ApiKey, cap: Cap, spend: Spend): Promise<void> {
  const counted = counting(ctx, apiKey, cap, spend)
  const { rows } = await sql<{ used: bigint }>`
    select coalesce(sum(s.amount), 0)::numeric(1000, 0) as used ${counted}`.execute(ctx.db)
  const most = BigInt(cap.perDay) * WHOLE
  const left = most - (rows[0]?.used ?? 0n)
  if (spend.amount <= left) return
  const free = left > 0n ? left : 0n
  const fits = spend.amount > most ? undefined : await fittingAt(ctx, counted, spend.amount - left)
  const whose = cap.keyId === undefined ? "All API keys of this merchant together" : "This API key"
  const verb = spend.kind === "refund" ? "refund" : "return"
  const when = fits
    ? `This one fits from ${fits.toISOString()} on.`
    : "This one is more than that, so it never fits: a person may make it, or raise the limit."
  const said = `${whose} may ${verb} ${cap.perDay} of a token in 24 hours, and ${formatAmount(free, DECIMALS)} are left. ${when}`
  throw new ApiError("DAILY_LIMIT_REACHED", [{ path: cap.path, message: said }], said)
}

/** When so much will have left the window that `needed` more fits. */
async function fittingAt(ctx: TxContext, counted: RawBuilder<unknown>, needed: bigint): Promise<Date | undefined> {
  const { rows } = await sql<{ created_at: Date }>`
    select created_at from (
      select s.created_at, sum(s.amount) over (order by s.created_at, s.object_id) as freed ${counted}) f
    where freed >= ${needed} order by created_at limit 1`.execute(ctx.db)
  return rows[0] && new Date(rows[0].created_at.getTime() + WINDOW_MS)
}

/** Writes what counts from now on, and deletes what counts no more. */
async function write(ctx: TxContext, { id, merchantId }: ApiKey, spend: Spend): Promise<void> {
  const { kind, token, amount } = spend
  const fields = { key_id: id, token, amount, created_at: ctx.now() }
  await ctx.db
    .deleteFrom("key_spends")
    .where("merchant_id", "=", merchantId)
    .where("created_at", "<=", since(ctx))
    .execute()
  await ctx.db
    .insertInto("key_spends")
    .values({ merchant_id: merchantId, kind, object_id: spend.id, ...fields })
    .onConflict(conflict => conflict.columns(["merchant_id", "kind", "object_id"]).doUpdateSet(fields))
    .execute()
}
