/**
 * Reads the transactions that wait for a signature, and checks that each is still the transaction that got the nonce. A
 * signer must see nothing else. Also replaces transactions that must not be signed or sent unchanged.
 */
import { sql } from "kysely"
import type { Fees } from "../../platform/chain/fees.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { RELEASE_GAS } from "../../platform/chain/release-call.ts"
import { unsignedHash } from "../../platform/chain/signer.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { chainClock } from "../../platform/jobs/chain-clock.ts"
import type { Lane, Payout } from "./lane.ts"
import { lockWallet } from "./lock-wallet.ts"
import { attemptAgain, EMPTY_GAS } from "./send-attempts.ts"
import { transactionOf, type UnsignedRow } from "./unsigned-attempt.ts"

/** An unsigned attempt, with the columns of its payout. */
export type Unsigned = Pick<
  Row<"transaction_attempts">,
  "id" | "payout_id" | "chain_id" | "wallet" | "nonce" | "gas" | "max_fee" | "tip" | "empty"
> &
  Pick<
    Row<"payouts">,
    "to_address" | "data" | "value" | "lane" | "kind" | "payment_id" | "escrow_id" | "traceparent"
  > & {
    unsigned_hash: Hash
    /** The payout's own gas limit, if it has one. */
    own_gas: bigint | null
  }

/**
 * Returns the newest attempt of each payout of a wallet that may be signed now, lowest nonce first. A nonce below
 * `latest` needs no signature, because the chain has used it, and `confirmPayouts` finds the transaction. A payout for
 * another factory is left to that factory's process, but any process may sign an empty transfer. An attempt with a fee
 * above `PAYOUT_MAX_FEE` gets a successor, which the next turn signs.
 */
export async function signableAttempts(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  latest: bigint,
): Promise<Unsigned[]> {
  const { rows } = await sql<Unsigned>`
    select a.*, i.to_address, i.data, i.value, i.lane, i.kind, i.payment_id, i.escrow_id, i.traceparent, i.gas as own_gas
    from payouts i join transaction_attempts a on a.payout_id = i.id
    where a.chain_id = ${wallet.chain_id} and a.wallet = ${wallet.address} and a.raw is null and a.nonce >= ${latest}
      and i.state = 'assigned' and not exists (select from transaction_attempts b where b.payout_id = i.id and b.n > a.n)
    order by a.nonce`.execute(ctx.db)
  if (rows.length === 0) return []
  const ours = rows.filter(row => !isElsewhere(ctx, lane, wallet, row))
  const calls = ours.flatMap(row => (row.empty ? [] : [row.payout_id]))
  // The calldata is compared again, as it was compared when the payout got its nonce.
  const faultOf = await lane.calldataFaults(ctx, calls)
  const found = (row: Unsigned) => alteredSince(row) ?? (row.empty ? undefined : faultOf(row.payout_id))
  const sound = ours.filter(row => isSound(ctx, wallet, row, found(row)))
  const isDear = (row: Unsigned) => row.max_fee > ctx.settings.payoutMaxFee
  await lowerFees(ctx, wallet, sound.filter(isDear))
  return sound.filter(row => !isDear(row))
}

/** Combines the attempt of a payout that just got its nonce with the payout columns that were checked then. */
export function toSign(attempt: UnsignedRow & { id: bigint }, payout: Payout): Unsigned {
  const { to_address, data, value, lane, kind, payment_id, escrow_id, traceparent, gas: own_gas } = payout
  return { ...attempt, to_address, data, value, lane, kind, payment_id, escrow_id, traceparent, own_gas }
}

/**
 * Whether a signer may see an attempt: neither `found` nor this check reports a fault. Logs the fault if there is one.
 */
export function isSound(ctx: Context, wallet: Row<"wallets">, attempt: Unsigned, found?: string): boolean {
  const reason = faultIn(attempt, wallet) ?? found
  if (reason !== undefined)
    ctx.log.error({ payoutId: attempt.payout_id, reason }, "a payout was altered by hand; it is not signed")
  return reason === undefined
}

/** Whether the process of another factory must sign an attempt. Logs this while the wallet has the alarm `signer`. */
function isElsewhere(ctx: Context, lane: Lane, wallet: Row<"wallets">, row: Unsigned): boolean {
  if (row.empty || !lane.isElsewhere(row.to_address)) return false
  const facts = { payoutId: row.payout_id, nonce: `${row.nonce}`, factory: row.to_address }
  if (wallet.alarms.includes("signer"))
    ctx.log.error(
      facts,
      "a payout waits to be signed by a process that serves its deposit factory; this one serves another",
    )
  return true
}

/**
 * Finds values that the engine never writes, so that an attacker with write access to the database can't make a signer
 * spend the wallet's ether.
 */
function faultIn(attempt: Unsigned, { lane }: Row<"wallets">): string | undefined {
  const { empty, gas, own_gas } = attempt
  if (attempt.lane !== lane) return "it is for another wallet"
  if (!empty && attempt.value !== 0n && !kindOf(attempt).sendsEther) return "it sends ether"
  if (gas > (empty ? EMPTY_GAS : (own_gas ?? RELEASE_GAS))) return "its gas is more than its call takes"
  return undefined
}

/** Returns a fault if the stored attempt no longer has the hash that it had when it got its nonce. */
const alteredSince = (attempt: Unsigned): string | undefined =>
  unsignedHash(transactionOf(attempt, attempt)) === attempt.unsigned_hash
    ? undefined
    : "its transaction is not what it was when it got its nonce"

/** Limits fees to `PAYOUT_MAX_FEE`, which may have been lowered since the fees were set. */
function withinCap(
  { settings: { payoutMaxFee: cap } }: TxContext,
  { max_fee, tip }: Row<"transaction_attempts">,
): Fees {
  const most = (fee: bigint) => (fee < cap ? fee : cap)
  return { maxFee: most(max_fee), tip: most(tip) }
}

/**
 * Replaces each unsigned attempt with a fee above `PAYOUT_MAX_FEE` by an attempt with a fee within it. The replaced
 * attempt was never sent, and never will be.
 */
async function lowerFees(ctx: Context, { id: walletId }: Row<"wallets">, dear: readonly Unsigned[]): Promise<void> {
  if (dear.length === 0) return
  await inTransaction(ctx, async ctx => {
    const wallet = await lockWallet(ctx, walletId)
    const ids = dear.map(({ id }) => id)
    const { rows } = await sql<Row<"transaction_attempts">>`select a.* from transaction_attempts a
      where a.id = any(${sqlArray("bigint", ids)}) and a.raw is null
        and not exists (select from transaction_attempts b where b.payout_id = a.payout_id and b.n > a.n)
      order by a.nonce`.execute(ctx.db)
    for (const last of rows) {
      await attemptAgain(ctx, wallet, last, { ...withinCap(ctx, last), empty: last.empty })
      const facts = { payoutId: last.payout_id, nonce: `${last.nonce}`, maxFee: `${last.max_fee}` }
      ctx.log.warn(facts, "the fee of an unsigned payout is above PAYOUT_MAX_FEE; the fee is lowered")
    }
  })
}

/**
 * Replaces each relay whose deadline passed before it was sent, signed or not, with an empty transfer, which uses up
 * the relay's nonce. The payer no longer waits and may have paid in another way, while the authorization may stay valid
 * forever. If a process died after it sent the relay and before it recorded this, either transaction may be mined, and
 * the mined one counts.
 */
export async function emptyOverdue(
  ctx: Context,
  { hasDeadlines }: Lane,
  { id: walletId }: Row<"wallets">,
  latest: bigint,
): Promise<void> {
  if (!hasDeadlines) return
  const which = (
    wallet: number,
  ) => sql`from wallets w join payouts i on i.chain_id = w.chain_id and i.wallet = w.address
      join transaction_attempts a on a.payout_id = i.id
    where w.id = ${wallet} and w.status = 'active' and i.state = 'assigned' and i.relay_by <= ${chainClock(ctx, sql`i.chain_id`)} and not a.empty
      and a.nonce >= ${latest}
      and not exists (select from transaction_attempts b where b.payout_id = i.id and (b.n > a.n or b.sends > 0))`
  const { rows } = await sql`/* named: overdue_relays */ select a.id ${which(walletId)} limit 1`.execute(ctx.db)
  if (rows.length === 0) return
  const overdue = (wallet: number) => sql<Row<"transaction_attempts">>`select a.* ${which(wallet)} order by a.nonce`
  await inTransaction(ctx, async ctx => {
    // Storing a signature takes this lock too. So the signature is either already stored or will never be stored.
    const wallet = await lockWallet(ctx, walletId)
    for (const last of (await overdue(walletId).execute(ctx.db)).rows) {
      await attemptAgain(ctx, wallet, last, { ...withinCap(ctx, last), empty: true })
      ctx.log.warn(
        { payoutId: last.payout_id, nonce: `${last.nonce}` },
        "a relay was not sent in time; its nonce is used up",
      )
    }
  })
}
