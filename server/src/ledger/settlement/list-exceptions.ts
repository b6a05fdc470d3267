/** Lists payments with an exception for the merchant. */
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { HeldReason } from "../../platform/db/schema.ts"
import { type ListedTransaction, transactionsOf } from "../books/read-transactions.ts"
import { decisionFacts } from "./read-decisions.ts"

/**
 * Explains to the merchant, in a sentence, why a return is held. `detail` is the node's reason why the transfer would
 * fail.
 */
function heldMessage(reason: HeldReason, detail: string | null): string {
  if (reason === "simulation")
    return `The transfer would currently fail on chain, and will be retried: ${detail ?? "no reason is known"}. A recovery may have emptied the address, or the token refuses the recipient.`
  return {
    short:
      "It is not certain that all of the return's money is at this address: a reorg is moving or has removed part of it, or not every node has the money yet. The return is sent when all of the money is there.",
    sanctions: "The recipient is on a sanctions list.",
    low_gas: "The service has too little gas at the moment. The return is sent when the service has more.",
    reverted: "The return failed on chain, and will be retried.",
    gas_budget: "The daily gas budget of your payouts is spent. The return is sent when the budget allows it.",
    allowance: "The token allowance of the paying wallet is too low.",
    balance: "The balance of the paying wallet is too low.",
  }[reason]
}

/** Returns these rows of the list, each with its decision and the return address that the payer named. */
export async function exceptionsOf(ctx: TxContext, rows: readonly ListedTransaction[]) {
  if (rows.length === 0) return []
  const ids = rows.map(row => row.id)
  const payments = await ctx.db.selectFrom("payments").selectAll().where("id", "in", ids).execute()
  const surpluses = await ctx.db.selectFrom("surpluses").selectAll().where("payment_id", "in", ids).execute()
  const format = await amountFormatter(ctx, rows)
  const returns = await ctx.db
    .selectFrom("payouts")
    .select(["payment_id", "state", "tx_hash", "held_reason", "held_detail"])
    .where("payment_id", "in", ids)
    .where("kind", "=", "return")
    .where("state", "<>", "cancelled")
    .orderBy("created_at", "desc")
    .orderBy("checks", "desc")
    .execute()
  const approvers = await ctx.db
    .selectFrom("deposits")
    .select(["id", "approver"])
    .whereRef("approver", "<>", "factory")
    .where(
      "id",
      "in",
      [...payments, ...surpluses].map(row => row.deposit_id ?? -1n),
    )
    .execute()
  const decisions = await decisionFacts(ctx, ids)
  return (await transactionsOf(ctx, rows)).map(each => {
    const payment = payments.find(row => row.id === each.id)
    const sent = returns.find(row => row.payment_id === each.id)
    const { buys = false, acceptable = true, returnAddress } = decisions.get(each.id) ?? {}
    const surplus =
      payment?.status === "granted" ? surpluses.find(({ payment_id }) => payment_id === each.id) : undefined
    const to = payment?.returned_to ?? surplus?.returned_to
    const held = payment?.deposit_id ?? surplus?.deposit_id
    const approver = approvers.find(row => row.id === held)?.approver
    return {
      ...each,
      type: "payment" as const,
      status: payment?.status ?? ("reversed" as const),
      approver: approver ? checksummed(approver) : null,
      acceptedAt: payment?.accepted_at?.toISOString() ?? null,
      surplus:
        payment && surplus
          ? { amount: format({ ...payment, amount: surplus.amount }).amount, status: surplus.state }
          : null,
      buys,
      acceptable,
      returnAddress: returnAddress ? checksummed(returnAddress) : null,
      return: to
        ? {
            address: checksummed(to),
            state: sent?.state ?? "queued",
            txHash: sent?.tx_hash ?? null,
            reason: sent?.held_reason ? heldMessage(sent.held_reason, sent.held_detail) : null,
          }
        : null,
    }
  })
}
