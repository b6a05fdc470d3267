/** Transactions that wait for a signature, and whether each is still what got a nonce: nothing else is ever shown to a signer. */
import { sql } from "kysely"
import type { Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { RELEASE_GAS } from "../chain/release-call.ts"
import { unsignedHash } from "../chain/signer.ts"
import { type Context, inTransaction } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { calldataFaults } from "./check-signed-transactions.ts"
import { policies } from "./lane-policy.ts"
import { attemptAgain, EMPTY_GAS } from "./send-attempts.ts"
import { transactionOf } from "./unsigned-attempt.ts"
import { lockWallet } from "./wallet-row.ts"

/** An attempt that is not signed, with what it is for. */
export type Unsigned = Row<"transaction_attempts"> &
  Pick<
    Row<"payouts">,
    "to_address" | "data" | "value" | "lane" | "kind" | "payment_id" | "escrow_id" | "traceparent"
  > & {
    unsigned_hash: Hash
    /** The gas limit that the payout was given, where it has one of its own. */
    own_gas: bigint | null
    /** The most that an operator let an empty transfer of its nonce pay, in wei for a unit of gas. */
    allowed_fee: bigint | null
  }

/**
 * The newest attempt of each payout of a wallet that may be signed now, lowest nonce first. A nonce that the chain has used (`latest` and
 * below) needs no signature: `confirmPayouts` finds out by which transaction. What is for another factory is for the process that serves it.
 */
export async function signableAttempts(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  latest: bigint,
): Promise<Unsigned[]> {
  const { rows } = await sql<Unsigned>`
    select a.*, i.to_address, i.data, i.value, i.lane, i.kind, i.payment_id, i.escrow_id, i.traceparent, i.gas as own_gas,
      (select max((o.after ->> 'max_fee')::numeric(78,0)) from operator_actions o
        where a.empty and o.payout_id = i.id and o.action = 'unstick') as allowed_fee
    from payouts i join transaction_attempts a on a.payout_id = i.id
    where a.chain_id = ${wallet.chain_id} and a.wallet = ${wallet.address} and a.raw is null and a.nonce >= ${latest}
      and i.state = 'assigned' and (${wallet.lane} <> 'payout' or i.to_address = ${network.depositFactory})
      and not exists (select from transaction_attempts b where b.payout_id = i.id and b.n > a.n)
    order by a.nonce`.execute(ctx.db)
  if (rows.length === 0) return []
  const ids = rows.map(each => each.payout_id)
  // Relays move no money of ours; what is to leave a deposit is compared with its deposit once more, as when it got its nonce.
  const faultOf = policies[wallet.lane].keepsBooks ? await calldataFaults(ctx, network, ids) : () => undefined
  return rows.filter(row => {
    const reason = faultIn(row, wallet, ctx.settings.payoutMaxFee) ?? (row.empty ? undefined : faultOf(row.payout_id))
    if (reason !== undefined)
      ctx.log.error({ payoutId: row.payout_id, reason }, "a payout was altered by hand; it is not signed")
    return reason === undefined
  })
}

/** What the engine never writes: whoever can write the database must not have a signer spend the wallet's ether. */
function faultIn(attempt: Unsigned, { lane }: Row<"wallets">, cap: bigint): string | undefined {
  const { empty, gas, own_gas, max_fee, allowed_fee } = attempt
  if (attempt.lane !== lane) return "it is for another wallet"
  if (!empty && attempt.value !== 0n) return "it sends ether"
  if (gas > (empty ? EMPTY_GAS : (own_gas ?? RELEASE_GAS))) return "its gas is more than its call takes"
  if (max_fee > cap && max_fee > (allowed_fee ?? 0n)) return "its fee is above PAYOUT_MAX_FEE"
  if (unsignedHash(transactionOf(attempt, attempt)) !== attempt.unsigned_hash)
    return "its transaction is not what it was when it got its nonce"
  return undefined
}

/**
 * Puts an empty transfer in the place of each relay whose time was over before anything of it was signed: its payer waits no more, and may have
 * paid in another way, while the authorization may be valid for ever. Its nonce is used up.
 */
export async function emptyOverdue(ctx: Context, { id: walletId, lane }: Row<"wallets">): Promise<void> {
  if (lane !== "relay") return
  const overdue = (wallet: number) => sql<Row<"transaction_attempts">>`
    select a.* from wallets w join payouts i on i.chain_id = w.chain_id and i.wallet = w.address
      join transaction_attempts a on a.payout_id = i.id
    where w.id = ${wallet} and w.status = 'active' and i.state = 'assigned' and i.relay_by <= ${ctx.now()} and not a.empty
      and not exists (select from transaction_attempts b where b.payout_id = i.id and (b.n > a.n or b.raw is not null))
    order by a.nonce`
  if ((await overdue(walletId).execute(ctx.db)).rows.length === 0) return
  await inTransaction(ctx, async ctx => {
    // Whoever stores a signature holds it too: either that is there by now, or it is never stored.
    const wallet = await lockWallet(ctx, walletId)
    for (const last of (await overdue(walletId).execute(ctx.db)).rows) {
      await attemptAgain(ctx, wallet, last, { maxFee: last.max_fee, tip: last.tip, empty: true })
      ctx.log.warn(
        { payoutId: last.payout_id, nonce: `${last.nonce}` },
        "a relay was not signed in time; its nonce is used up",
      )
    }
  })
}
