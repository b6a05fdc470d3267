/** Finds relays whose payment is no longer needed. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { isArriving } from "./try-relay.ts"

/**
 * SQL: whether a relay `q` that was accepted before `i` may still bring money, because it is signed and has not failed.
 * An unsigned relay may never be signed. So such a relay counts, and cancels another relay, only when `i` is about to
 * be signed.
 */
const mayPay = (withQueued: boolean) => sql`q.lane = 'relay' and (q.created_at, q.id) < (i.created_at, i.id)
  and (q.state = 'assigned' or (q.state in ('mined', 'final') and q.succeeded)
    or (${withQueued} and q.state in ('queued', 'held')))`

/** SQL: how many uses of link `l` may be taken by earlier relays for other sessions of that link. */
const earlierOf = (withQueued: boolean) => sql`(select count(*) from checkout_sessions o
  join deposits e on e.resource_id = o.id join payouts q on q.deposit_id = e.id
  where l.max_uses is not null and o.link_id = l.id and o.id <> s.id and o.status <> 'confirmed' and ${mayPay(withQueued)})`

/** SQL: whether an earlier relay of the same session may bring money that the scan has not found yet. */
const isSecond = (withQueued: boolean) => sql`exists (select from payouts q where q.deposit_id = i.deposit_id
  and ${mayPay(withQueued)} and not exists (select from transfers t
    where t.tx_hash = q.tx_hash and t.deposit_id = q.deposit_id and t.state <> 'gone'))`

/**
 * Returns the ids of relays whose amount no longer matches what their session needs. Meanwhile the session was paid in
 * another way or accepted, or its link is used up, or an earlier relay will use it up. Such a relay would take money
 * that nobody requested. `isSigning` means that the relays are about to be signed, so earlier unsigned relays count
 * too.
 */
export async function unneededRelays(
  ctx: TxContext,
  all: readonly Row<"payouts">[],
  isSigning = false,
): Promise<Set<string>> {
  const relays = all.filter(row => row.deposit_id !== null)
  if (relays.length === 0) return new Set()
  const { rows } = await sql<{ id: string }>`
    select i.id from payouts i join deposits d on d.id = i.deposit_id join checkout_sessions s on s.id = d.resource_id
      left join payment_links l on l.id = s.link_id
    where i.id in (${sql.join(relays.map(row => sql`${row.id}::uuid`))}) and (s.status = 'confirmed' or ${isSecond(isSigning)} or l.uses + ${earlierOf(isSigning)} >= l.max_uses or s.amount - i.amount <> (
      select coalesce(sum(t.value), 0) from transfers t left join claims c on c.transfer_id = t.id
      where t.deposit_id = i.deposit_id and t.token = i.token and ${isArriving}))`.execute(ctx.db)
  return new Set(rows.map(row => row.id))
}
