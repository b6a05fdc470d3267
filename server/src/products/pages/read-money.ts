/**
 * Reads what happened to a checkout's money: the transactions that brought it, and the payments that need the
 * merchant's decision. For those, the page links to `/return/:paymentId`. Anyone who knows the checkout can read the
 * same on chain. Nothing is returned without the signature of the wallet that paid.
 */
import { sql } from "kysely"
import type { WaitingMoney } from "../../../../web/src/page-data.ts"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed, type Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { arrivalKey, MAX_SHOWN, waitingPayments } from "./queries.ts"

type Session = Pick<Row<"checkout_sessions">, "id" | "chain_id" | "exception">

/**
 * Returns a session's payments or surpluses for which the payers may name a return address. Those in the session's
 * token come first, then the largest. Money from senders on a sanctions list is left out, because it is never
 * returned.
 */
export async function waitingMoney(ctx: TxContext, { id, chain_id, exception }: Session): Promise<WaitingMoney[]> {
  // Only a session with an exception can have waiting money, and most sessions have no exception.
  if (exception === null) return []
  const { token } = networkOf(ctx.chain, chain_id)
  const rows = (await waitingPayments(ctx.db, arrivalKey(id, token.address))) ?? []
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => {
    const { amount, currency, currencyVerified: isAsked } = format(row)
    return { paymentId: row.id, payer: checksummed(row.payer), amount, currency, isAsked }
  })
}

/** Returns the transactions that brought money to a session in its own token, oldest first. */
export async function transactionsTo(ctx: TxContext, { id, chain_id }: Session): Promise<Hash[]> {
  const { rows } = await sql<{ tx_hash: Hash }>`
    select t.tx_hash from transfers t join deposits d on d.id = t.deposit_id
    where d.resource_id = ${id} and t.token = ${networkOf(ctx.chain, chain_id).token.address} and t.state <> 'gone'
    group by t.tx_hash order by min(t.block_number), min(t.log_index) limit ${MAX_SHOWN}`.execute(ctx.db)
  return rows.map(row => row.tx_hash)
}

/** Returns the transactions that a payment consists of, oldest first. */
export async function transactionsOfPayment(ctx: TxContext, paymentId: string): Promise<Hash[]> {
  const { rows } = await sql<{ tx_hash: Hash }>`
    select t.tx_hash from claims c join transfers t on t.id = c.transfer_id where c.payment_id = ${paymentId}
    group by t.tx_hash order by min(t.block_number), min(t.log_index) limit ${MAX_SHOWN}`.execute(ctx.db)
  return rows.map(row => row.tx_hash)
}
