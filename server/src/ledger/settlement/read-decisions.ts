/** Reads what the merchant has to know before deciding about an open payment. */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import { mayBuy } from "../../platform/chain/may-buy.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ifKind } from "../../platform/ids.ts"

export interface DecisionFacts {
  /**
   * Whether accepting the payment buys something: a checkout that no other payment has paid, or access to a paywall. If
   * not, its money is only paid out.
   */
  buys: boolean
  /**
   * False if a later invoice has replaced the closed invoice that the payment was for: it can only be returned. Whether
   * its sender is on a sanctions list is asked when it is accepted, because the list changes.
   */
  acceptable: boolean
  /** The address that its payer named by signature. */
  returnAddress: Address | null
}

/** The facts of these payments, by id; payments that are not open buy nothing. */
export async function decisionFacts(
  { db, chain }: TxContext,
  ids: readonly string[],
): Promise<Map<string, DecisionFacts>> {
  if (ids.length === 0) return new Map()
  const { rows } = await sql<Read>`
    select p.id, p.resource_id, p.chain_id, p.payer, p.status = 'open' as "isOpen",
      exists (select from payments g where g.resource_id = p.resource_id and g.status = 'granted' and not g.beside) as "isPaid",
      exists (select from invoices v join invoices n on n.subscription_id = v.subscription_id and n.sequence > v.sequence
        where v.session_id = p.resource_id and v.voided_at is not null) as "isReplaced",
      exists (select from grants g where g.payment_id = p.id and g.revoked_by = 'merchant') as "isRevoked",
      (select r.address from return_addresses r where r.resource_id = p.resource_id and r.payer = p.payer
        order by r.id desc limit 1) as "returnAddress"
    from payments p where p.id = any(${sqlArray("text", ids)})`.execute(db)
  return new Map(
    rows.map(row => {
      const canBuy =
        ifKind("cs", row.resource_id) !== null
          ? !row.isPaid && !row.isReplaced
          : ifKind("pw", row.resource_id) !== null &&
            !row.isRevoked &&
            mayBuy(networkOf(chain, row.chain_id), row.payer)
      return [
        row.id,
        {
          buys: row.isOpen && canBuy,
          acceptable: !(row.isOpen && row.isReplaced),
          returnAddress: row.returnAddress,
        },
      ]
    }),
  )
}

type Read = Pick<Row<"payments">, "id" | "resource_id" | "chain_id" | "payer"> & {
  isOpen: boolean
  isPaid: boolean
  /** Whether it was for an invoice that is closed, and that a later one has replaced: it can't be accepted. */
  isReplaced: boolean
  /** Whether the merchant has revoked the access that it bought, which is final. */
  isRevoked: boolean
  returnAddress: Address | null
}
