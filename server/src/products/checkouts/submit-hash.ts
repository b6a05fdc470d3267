/** Stores the hashes that payers submit to a checkout. */
import { sql } from "kysely"
import { wasAskedFor, watch, watchEnds } from "../../ledger/deposits/make-deposits.ts"
import { freshSubmission, verifySoon } from "../../ledger/scanner/queries.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { type Address, type Hash, parseHash } from "../../platform/chain/hex.ts"
import { isScreened, screen } from "../../platform/chain/screen-addresses.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { continueTrace } from "../../platform/tracing/trace.ts"
import { assertAsked, emailAfter } from "./answer-payer-info.ts"
import { sessionOf } from "./create-session.ts"
import type { PayConfirm } from "./schema.ts"

/** How long after a session's end its address is searched for late money. */
const LATE_WATCH_MS = 30 * 86_400_000
/** The most open submissions of one session at a time: a payer has one or two. */
const MAX_OPEN_HASHES = 10

/**
 * Stores a payer's claim that a transaction paid a session. This is a hint: the session would be confirmed without it.
 * Throws `INVALID_TX_HASH`, `SESSION_NOT_FOUND`, `SANCTIONS_MATCH`, `SESSION_ALREADY_CONFIRMED`, `SESSION_EXPIRED`,
 * `TXHASH_ALREADY_USED`.
 */
export async function confirmSession(ctx: Context, body: PayConfirm): Promise<{ status: "verifying"; txHash: Hash }> {
  const { sessionId: id } = body
  const txHash = parseHash(body.txHash)
  if (!txHash) throw new ApiError("INVALID_TX_HASH")
  const payer = body.payerAddress === undefined ? null : addressField("payerAddress", body.payerAddress)
  // The address is screened only if the session accepts the hash, and never inside a transaction.
  if (payer && isScreened(ctx)) {
    assertDirect(await sessionOf(ctx, id))
    if ((await screen(ctx, [payer], `confirm:${id}`)).get(payer) === "listed") throw new ApiError("SANCTIONS_MATCH")
  }
  const session = await inTransaction(ctx, async ctx => {
    const session = await lockPaid(ctx, id)
    assertDirect(session)
    if (session.status === "confirmed") throw new ApiError("SESSION_ALREADY_CONFIRMED")
    if (session.expires_at.getTime() + LATE_WATCH_MS < ctx.now().getTime()) throw new ApiError("SESSION_EXPIRED")
    assertAsked(session, body.payerInfo)
    await submit(ctx, session, { txHash, address: payer, body })
    return session
  })
  if (session.is_watch_ending) await watch(ctx, id)
  await verifySoon(ctx, session.chain_id)
  return { status: "verifying", txHash }
}

function assertDirect({ capture }: Pick<Row<"checkout_sessions">, "capture">): void {
  if (capture === "direct") return
  throw new ApiError("INVALID_OPERATION", undefined, "This checkout is paid with a signature, not a transfer.")
}

type Paid = Pick<
  Row<"checkout_sessions">,
  | "id"
  | "chain_id"
  | "capture"
  | "status"
  | "expires_at"
  | "payer_fields"
  | "payer_info"
  | "customer_email"
  | "traceparent"
> & { is_watch_ending: boolean }

/** Locks the session until the transaction ends, so that its submissions are counted one by one. */
async function lockPaid(ctx: TxContext, id: string): Promise<Paid> {
  const { rows } = await sql<Paid>`
    select /* named: lock_paid_session */ s.id, s.chain_id, s.capture, s.status, s.expires_at, s.payer_fields, s.payer_info,
      s.customer_email, s.traceparent,
      coalesce(${watchEnds(ctx.now())} or not ${wasAskedFor("d")}, false) as is_watch_ending
    from checkout_sessions s left join deposits d on d.resource_id = s.id
    where s.id = ${id} for no key update of s`.execute(ctx.db)
  const [session] = rows
  if (!session) throw new ApiError("SESSION_NOT_FOUND")
  return session
}

interface Submitted {
  txHash: Hash
  address: Address | null
  body: PayConfirm
}

/**
 * Writes the submission and the payer's answers. Refuses a transaction whose transfers here all paid for other
 * things, and refuses more hashes than a payer needs. Nothing is written then.
 */
async function submit(ctx: TxContext, session: Paid, { txHash, address, body }: Submitted): Promise<void> {
  const now = ctx.now()
  const { status, message } = freshSubmission(now)
  // Anyone may submit a hash, so it changes no session that has ended or has money. Only the chain changes those.
  const begins = session.status === "pending" && now <= session.expires_at
  const answers = body.payerInfo ? JSON.stringify(body.payerInfo) : null
  const { rows } = await sql<{ is_used: boolean; is_full: boolean }>`
    /* named: submit_hash */ with found as (
      select (select coalesce(bool_and(d.resource_id <> ${session.id} and coalesce(p.status = 'granted', false)), false)
          from transfers t join deposits d on d.id = t.deposit_id
            left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
          where t.chain_id = ${session.chain_id} and t.tx_hash = ${txHash} and t.state <> 'gone') as is_used,
        (select count(*) from (select from submissions s where s.resource_id = ${session.id} and s.status = 'verifying'
          and s.tx_hash <> ${txHash} limit ${MAX_OPEN_HASHES}) open) = ${MAX_OPEN_HASHES} as is_full),
    usable as (select from found where not is_used and not is_full),
    made as (
      insert into submissions (resource_id, chain_id, tx_hash, by_sender, address, status, reason, message, attempts, run_at,
        submitted_at, updated_at, traceparent)
      select ${session.id}, ${session.chain_id}::integer, ${txHash}, false, ${address}, ${status}, null, ${message}, 0,
        ${now}::timestamptz, ${now}::timestamptz, ${now}::timestamptz, ${continueTrace(ctx, session.traceparent)} from usable
      on conflict (resource_id, tx_hash) where not by_sender do update set address = excluded.address, status = excluded.status,
        reason = excluded.reason, message = excluded.message, attempts = excluded.attempts, run_at = excluded.run_at,
        submitted_at = excluded.submitted_at, updated_at = excluded.updated_at, traceparent = excluded.traceparent
      where submissions.status in ('failed', 'reversed')),
    changed as (
      update checkout_sessions s set status = case when ${begins}::boolean then 'verifying' else s.status end,
        message = case when not ${begins}::boolean then s.message end,
        customer_email = ${emailAfter(session, body)}::text,
        payer_info = coalesce(${answers}::jsonb, s.payer_info), run_at = ${now}, updated_at = ${now}
      from usable where s.id = ${session.id})
    select is_used, is_full from found`.execute(ctx.db)
  const [found] = rows
  if (found?.is_used) throw new ApiError("TXHASH_ALREADY_USED")
  if (found?.is_full)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      `${MAX_OPEN_HASHES} transaction hashes of this checkout are being verified; wait for their results.`,
    )
}
