/**
 * Broadcasts signed bytes, read back from the database, to every endpoint, lowest nonce first. A transaction that stays
 * unmined too long is replaced by another attempt with a higher fee, the same nonce and the same payment. At most one
 * attempt per nonce is mined.
 */
import { sql } from "kysely"
import { ask, awake } from "../../platform/chain/endpoints.ts"
import { type Fees, raisedFees } from "../../platform/chain/fees.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import type { WalletState } from "../../platform/chain/wallet-state.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutAlarms } from "../../platform/metrics.ts"
import { unixMs } from "../../platform/tracing/trace.ts"
import { classifyAnswer, summaryOf } from "./broadcast-results.ts"
import { lockWallet } from "./lock-wallet.ts"
import { tracePayouts, withoutBatches } from "./trace-transactions.ts"
import { type UnsignedRow, unsignedAttempt } from "./unsigned-attempt.ts"

/** How long to wait before the bytes are sent again, and before they are replaced. */
export interface Pace {
  resendMs: number
  replaceMs: number
}

export const usualPace: Pace = { resendMs: 10_000, replaceMs: 30_000 }

/** How many transactions one turn sends, because nodes keep 64 per sender. */
const SENT_AT_ONCE = 64

/**
 * Sends the newest signed attempt of each assigned payout, lowest nonce first. Also sends attempts of mined payouts
 * whose nonce is unused at the endpoint with the lowest count. A reorg may have displaced the block of such a payout,
 * and every higher nonce waits until the payout is mined again. A relay that was not sent before its deadline is never
 * sent. A halted wallet sends nothing, except with `evenHalted`. Returns when the endpoints have responded. Before the
 * next broadcast, await `noted`, which stores the endpoints' answers. If those answers are lost, the same bytes are
 * sent again.
 */
export async function sendAttempts(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
  { lowest }: WalletState,
  pace: Pace,
  { evenHalted = false } = {},
): Promise<{ noted: Promise<void> } | undefined> {
  const startMs = unixMs()
  // The lateral join looks up each payout in flight. With poor statistics, the planner chose a plain join that read all
  // past attempts.
  const due = await sql<Due>`
    /* named: attempts_to_send */ select a.id as attempt, a.raw, a.hash, a.nonce, i.id, i.kind, i.payment_id, i.escrow_id, i.traceparent
    from payouts i cross join lateral (select * from transaction_attempts where payout_id = i.id and raw is not null
      order by n desc limit 1) a
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address}
      and (i.state = 'assigned' or (i.state = 'mined' and i.nonce >= ${lowest ?? null}))
      and exists (select from wallets w where w.id = ${wallet.id} and (w.status = 'active' or ${evenHalted}))
      and (a.empty or i.state = 'mined' or coalesce(i.relay_by > ${ctx.now()}, true)
        or exists (select from transaction_attempts s where s.payout_id = i.id and s.sends > 0))
      and (a.sent_at is null or a.sent_at < clock_timestamp() - make_interval(secs => ${pace.resendMs / 1_000}))
    order by a.nonce limit ${SENT_AT_ONCE}`.execute(ctx.db)
  if (due.rows.length === 0) return undefined
  const calls = due.rows.map(({ raw }) => ({ method: "eth_sendRawTransaction", params: [raw] }))
  const answers = await Promise.all(awake(chain.endpoints).map(endpoint => ask(endpoint, calls, ctx.signal)))
  const results = due.rows.map((_, i) => summaryOf(answers.map(answer => classifyAnswer(answer?.[i]))))
  const sent = due.rows.map(({ attempt, hash, nonce }, i) => {
    const result = results[i] ?? "unknown"
    if (result === "alarm") {
      const said = answers.map(answer => answer?.[i])
      ctx.log.error({ hash, nonce: `${nonce}`, said }, "a payout can't be mined as it is; a person must act")
      payoutAlarms.inc({ network: chain.name, wallet: wallet.lane, reason: "send" })
    }
    return { id: `${attempt}`, result }
  })
  const noting =
    sql`/* named: note_sent */ update transaction_attempts a set sent_at = clock_timestamp(), sends = sends + 1, last_result = sent.result
    from (${rowsParameter(sent, "id bigint, result text")}) sent where a.id = sent.id`.execute(ctx.db)
  const step = {
    name: "eth_sendRawTransaction",
    kind: "client" as const,
    startMs,
    attributes: {
      "rpc.system.name": "jsonrpc",
      "rpc.method": "eth_sendRawTransaction",
      "sluice.network": chain.name,
    },
  }
  const noted = noting.then(() => {})
  // The caller that awaits `noted` gets its error. This handler only prevents an unhandled rejection before that.
  noted.catch(() => {})
  const traced = due.rows.map((row, i) => ({ ...row, result: results[i] }))
  tracePayouts(ctx, step, await withoutBatches(ctx, traced), ({ hash, result }) => {
    const error = result === "sent" ? undefined : result
    return { attributes: { "sluice.transaction.hash": hash, "sluice.broadcast.result": result }, error }
  })
  return { noted }
}

/** Signed bytes to send, with their payout. */
interface Due extends Pick<Row<"payouts">, "id" | "kind" | "payment_id" | "escrow_id" | "traceparent"> {
  attempt: bigint
  raw: string
  hash: Hash
  nonce: bigint
}

/**
 * Replaces the attempt of the chain's next nonce after it has waited long enough, or after an endpoint said that its
 * fee is too low. The new fee is an eighth higher, and at least the market's fee. Attempts with higher nonces wait for
 * lower ones, so a higher fee would not help them. Returns how many attempts were replaced.
 */
export async function replaceStuck(
  ctx: Context,
  chain: ReachableChain,
  { id: walletId }: Row<"wallets">,
  { market, latest }: WalletState,
  pace: Pace,
): Promise<0 | 1> {
  if (market === undefined || latest === undefined) return 0
  return await inTransaction(ctx, async ctx => {
    const wallet = await lockWallet(ctx, walletId)
    if (wallet.status !== "active") return 0
    const { rows } = await sql<Row<"transaction_attempts"> & { waited: boolean }>`
      select a.*, a.sent_at is not null and (a.last_result = 'bump' or coalesce(a.signed_at, a.created_at) < clock_timestamp()
        - make_interval(secs => ${pace.replaceMs / 1_000})) as waited
      from payouts i join transaction_attempts a on a.payout_id = i.id
      where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned' and i.nonce = ${latest}
      order by a.n desc limit 1`.execute(ctx.db)
    const [last] = rows
    if (!last?.waited) return 0
    const fees = raisedFees({ maxFee: last.max_fee, tip: last.tip }, market, ctx.settings.payoutMaxFee)
    const facts = { payoutId: last.payout_id, nonce: `${last.nonce}` }
    if (!fees) {
      ctx.log.error(facts, "a payout is stuck at PAYOUT_MAX_FEE; it is resent unchanged")
      payoutAlarms.inc({ network: chain.name, wallet: wallet.lane, reason: "fee_cap" })
      return 0
    }
    await attemptAgain(ctx, wallet, last, { ...fees, empty: last.empty })
    ctx.log.warn({ ...facts, attempt: last.n + 1 }, "a stuck payout was replaced at a higher fee")
    return 1
  })
}

/** The gas of an empty transfer from an address to itself. */
export const EMPTY_GAS = 21_000n

/**
 * Writes another attempt, still unsigned, for a nonce. Call this inside the transaction that holds the wallet's lock.
 */
export async function attemptAgain(
  ctx: TxContext,
  wallet: Row<"wallets">,
  last: Row<"transaction_attempts">,
  terms: Fees & { empty: boolean },
): Promise<void> {
  await ctx.db
    .insertInto("transaction_attempts")
    .values(await nextAttempt(ctx, wallet, last, terms))
    .execute()
}

/**
 * Builds the row of another attempt for a nonce. The new attempt makes the same payment or, with `empty`, an empty
 * transfer from the wallet to itself.
 */
export async function nextAttempt(
  ctx: TxContext,
  wallet: Row<"wallets">,
  last: Row<"transaction_attempts">,
  { empty, ...fees }: Fees & { empty: boolean },
): Promise<UnsignedRow> {
  const payout = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("id", "=", last.payout_id)
    .executeTakeFirstOrThrow()
  const terms = { n: last.n + 1, gas: empty ? EMPTY_GAS : last.gas, dataFee: last.data_fee, empty, ...fees }
  return unsignedAttempt({ ...payout, wallet: wallet.address, nonce: last.nonce }, terms)
}
