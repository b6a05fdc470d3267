/** Describes the rows of a story for the page of one payment. */
import { sql } from "kysely"
import { decisionFacts } from "../../ledger/settlement/read-decisions.ts"
import { amountFormatter, type FormattedAmount } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import type { Story } from "./find-story.ts"
import type { StoryRows } from "./load-story.ts"

/** An amount as answers show it. */
export const shownAmount = ({ amount, currency, decimals }: FormattedAmount) => ({ amount, currency, decimals })

/** Describes the payments, checkout, address, transfers and payouts of a story. */
export async function describeStory(ctx: TxContext, { paymentIds }: Story, rows: StoryRows) {
  const { payments, transfers, payouts, sessions, surpluses } = rows
  const format = await amountFormatter(ctx, [...payments, ...transfers, ...payouts])
  const [session] = sessions
  const parts = await partsOf(ctx, paymentIds)
  const deposit = await depositOf(ctx, rows)
  const decisions = await decisionFacts(
    ctx,
    payments.map(({ id }) => id),
  )
  return {
    payments: payments.map(row => {
      const { buys = false, acceptable = true, returnAddress } = decisions.get(row.id) ?? {}
      const surplus = surpluses.find(({ payment_id, state }) => payment_id === row.id && state === "open")
      return {
        id: row.id,
        status: row.status,
        exception: row.exception,
        payer: checksummed(row.payer),
        ...shownAmount(format(row)),
        token: checksummed(row.token),
        baseUnits: `${row.amount}`,
        chain: networkOf(ctx.chain, row.chain_id).name,
        txHash: row.tx_hash,
        createdAt: row.created_at.toISOString(),
        buys,
        acceptable,
        returnAddress: returnAddress ? checksummed(returnAddress) : null,
        surplus: surplus && row.status === "granted" ? format({ ...row, amount: surplus.amount }).amount : null,
      }
    }),
    ...(session ? { checkout: await checkoutOf(ctx, session) } : {}),
    ...(deposit ? { address: shownAddress(ctx, deposit) } : {}),
    transfers: transfers.map(row => ({
      txHash: row.tx_hash,
      from: checksummed(row.from_address),
      to: checksummed(row.to_address),
      ...shownAmount(format({ ...row, amount: row.value })),
      blockNumber: `${row.block_number}`,
      state: row.state,
      at: row.block_time.toISOString(),
    })),
    payouts: payouts.map(row => {
      const part = parts.get(row.id)
      return {
        id: payoutIdOf(row.id),
        kind: row.kind,
        state: row.state,
        recipient: checksummed(row.recipient),
        ...shownAmount(format(row)),
        ofThis: part === undefined ? null : format({ ...row, amount: part }).amount,
        txHash: row.tx_hash,
        createdAt: row.created_at.toISOString(),
      }
    }),
  }
}

/** How much of each sweep came from these payments, in base units, by the sweep's row id. */
async function partsOf({ db }: TxContext, paymentIds: readonly string[]): Promise<Map<string, bigint>> {
  if (paymentIds.length === 0) return new Map()
  const { rows } = await sql<{ id: string; amount: bigint }>`
    select s.payout_id as id, sum(s.amount)::numeric(78,0) as amount from claims c join sweep_parts s on s.transfer_id = c.transfer_id
    where c.payment_id = any(${sqlArray("text", paymentIds)}) group by 1`.execute(db)
  return new Map(rows.map(row => [row.id, row.amount]))
}

async function checkoutOf({ db, chain }: TxContext, row: Row<"checkout_sessions">) {
  const link =
    row.link_id === null
      ? undefined
      : await db.selectFrom("payment_links").select("slug").where("id", "=", row.link_id).executeTakeFirst()
  return {
    id: row.id,
    status: row.status,
    amount: formatAmount(row.amount, networkOf(chain, row.chain_id).token.decimals),
    currency: row.currency,
    description: row.description,
    productId: row.product_id,
    slug: link?.slug ?? null,
    customerEmail: row.customer_email,
    payerInfo: row.payer_info,
    metadata: row.metadata,
    expiresAt: row.expires_at.toISOString(),
  }
}

/** The checkout's address, or the one that holds the payment's money. */
async function depositOf({ db }: TxContext, { sessions, transfers, payments }: StoryRows) {
  const [session] = sessions
  const deposits = db.selectFrom("deposits").selectAll()
  if (session) return await deposits.where("resource_id", "=", session.id).executeTakeFirst()
  const id = transfers[0]?.deposit_id ?? payments[0]?.deposit_id ?? null
  return id === null ? undefined : await deposits.where("id", "=", id).executeTakeFirst()
}

const shownAddress = ({ chain }: TxContext, row: Row<"deposits">) => ({
  address: checksummed(row.address),
  chain: networkOf(chain, row.chain_id).name,
  owner: checksummed(row.owner),
  approver: checksummed(row.approver),
  factory: checksummed(row.factory),
  salt: row.salt,
  payeesHash: row.payees_hash,
  opensAt: new Date(Number.parseInt(`${row.open_after_s}`, 10) * 1_000).toISOString(),
})
