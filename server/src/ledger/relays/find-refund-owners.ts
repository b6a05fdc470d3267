/**
 * Decides whose refunds a payout wallet pays. An allowance belongs to the wallet, so if two merchants shared a wallet,
 * one merchant's approval would pay the other's refunds. So only one merchant can refund from a wallet: the last one
 * that proved its ownership, by switching its wallet lock on. Without any proof, it is the merchant that has captured
 * to the wallet and signs in with it. Otherwise it is the merchant that first captured to the wallet on chain.
 */
import { sql } from "kysely"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Payout } from "../txmanager/lane.ts"
import { isRefund } from "./check-refund-funds.ts"

/**
 * Returns, by wallet, the merchant whose refunds the wallet pays. There is no entry for a wallet whose ownership nobody
 * proved and that got no capture.
 */
export async function refundOwners(
  ctx: TxContext,
  { chainId }: Pick<NetworkInfo, "chainId">,
  wallets: readonly Address[],
): Promise<Map<Address, string>> {
  const asked = [...new Set(wallets)]
  if (asked.length === 0) return new Map()
  const subjects = asked.map(wallet => `eip155:${chainId}:${checksummed(wallet)}`)
  const captures = sql`payouts i where i.kind = 'capture' and i.succeeded and i.chain_id = ${chainId}
    and i.recipient = asked.wallet`
  const { rows } = await sql<{ wallet: Address; owner: string | null }>`
    select asked.wallet, coalesce(
      (select p.merchant_id from wallet_proofs p where p.address = asked.wallet and (p.by_key or p.chain_id = ${chainId})
        order by p.proven_at desc, p.merchant_id limit 1),
      (select m.merchant_id from persons p join members m on m.person_id = p.id and m.role = 'owner'
        where p.iss = ${ctx.settings.baseUrl} and p.sub = asked.subject
          and exists (select from ${captures} and i.merchant_id = m.merchant_id)
        order by m.created_at, m.merchant_id limit 1),
      (select i.merchant_id from ${captures} order by i.block_number, i.nonce, i.id limit 1)) as owner
    from unnest(${sqlArray("text", asked)}, ${sqlArray("text", subjects)}) as asked (wallet, subject)`.execute(ctx.db)
  return new Map(rows.flatMap(({ wallet, owner }) => (owner === null ? [] : [[wallet, owner] as const])))
}

/** Explains to a merchant what to do if its payout wallet pays another merchant's refunds. */
export const OTHER_OWNER =
  "Its payout wallet pays the refunds of another merchant of this service, which proved that it owns the wallet, signs in with it, or was first paid to it. An approval on chain does not say which merchant it is for. If the wallet is yours, make it sign for you: while it is your payout address, switch your wallet lock on (PUT /api/console/settings with walletLock: true; if it is on, switch it off first). The wallet then pays your refunds, also of earlier sales. Otherwise send the money to the payer from the wallet yourself, or, if the other merchant is yours too, refund from there."

/** Returns the ids of refunds whose wallet pays another merchant's refunds. */
export async function refundsOfOthers(
  ctx: TxContext,
  network: Pick<NetworkInfo, "chainId">,
  payouts: readonly Payout[],
): Promise<Set<string>> {
  const refunds = payouts.filter(isRefund)
  const ids = refunds.flatMap(({ escrow_id: id }) => id ?? [])
  if (ids.length === 0) return new Set()
  const escrows = await ctx.db
    .selectFrom("escrows")
    .select(["session_id", "receiver"])
    .where("session_id", "in", ids)
    .execute()
  const receivers = new Map(escrows.map(row => [row.session_id, row.receiver]))
  const owners = await refundOwners(ctx, network, [...receivers.values()])
  const isOthers = ({ escrow_id: id, merchant_id: own }: Payout): boolean => {
    const receiver = receivers.get(id ?? "")
    return receiver !== undefined && (owners.get(receiver) ?? own) !== own
  }
  return new Set(refunds.filter(isOthers).map(({ id }) => id))
}
