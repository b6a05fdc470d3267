/**
 * Compares the database with itself: sums with their parts, parts with their whole, copies with their originals. Each
 * question is one statement and sees one snapshot, so work in progress never makes an answer wrong.
 */
import { type RawBuilder, sql } from "kysely"
import { ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { isKind } from "../../platform/db/is-kind.ts"
import { remainingValue } from "../../platform/db/remaining-value.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { outgoingKinds } from "../deposits/sum-deposits.ts"
import type { Finding } from "./report.ts"

/** How much the clocks of processes and of the database may differ. */
const SLACK_MS = 60_000

/** SQL: whether all transfers of payment `p` are settled, and no transfer is about to be settled again. */
const quietAt = (now: Date) => sql`not exists (select from claims c join transfers t on t.id = c.transfer_id
    where c.payment_id = p.id and (t.state = 'seen' or t.suspect_at is not null or t.run_at is not null
      or (t.state = 'gone' and not ${isKind("p.resource_id", "cs")})))
  and not exists (select from checkout_sessions s where s.id = p.resource_id
    and s.run_at <= ${new Date(now.getTime() + SLACK_MS)})`

interface Question {
  table: string
  of: (chainId: number, isQuiet: RawBuilder<unknown>) => RawBuilder<{ id: string; words: string }>
}

/** Each question returns the ids of wrong rows, and what is wrong with each. */
const questions: Question[] = [
  {
    table: "deposit_books",
    of: chainId => sql`
      select coalesce(b.deposit_id, came.deposit_id, went.deposit_id) || '/' || coalesce(b.token, came.token, went.token) as id,
        format('says %s in, %s promised, %s short; its transfers are %s and its payouts %s', coalesce(b.inflow, 0),
          coalesce(b.committed, 0), coalesce(b.shortfall, 0),
          coalesce(came.sum, 0), coalesce(went.sum, 0)) as words
      from (select b.* from deposit_books b join deposits d on d.id = b.deposit_id where d.chain_id = ${chainId}) b
      full join (select deposit_id, token, sum(value) as sum from transfers
        where chain_id = ${chainId} and state in ('confirmed', 'final') group by 1, 2) came
        on came.deposit_id = b.deposit_id and came.token = b.token
      full join (select deposit_id, token, sum(amount) as sum from payouts
        where chain_id = ${chainId} and reserved and state not in ('cancelled', 'reverted') and kind in ${outgoingKinds()}
        group by 1, 2) went
        on went.deposit_id = coalesce(b.deposit_id, came.deposit_id) and went.token = coalesce(b.token, came.token)
      where b.inflow is distinct from coalesce(came.sum, 0) or b.committed is distinct from coalesce(went.sum, 0)
        or b.shortfall <> greatest(0, b.committed - b.inflow)`,
  },
  {
    table: "payments",
    of: (chainId, isQuiet) => sql`
      select p.id, format('says %s; by the rows of claims its transfers are %s', p.amount, coalesce(claimed.sum, 0)) as words
      from payments p left join lateral (
        select sum(${remainingValue}) filter (where t.state in ('confirmed', 'final')) as sum,
          bool_or(t.reorged_at is not null
            or exists (select from screenings g where g.address = t.from_address and g.listed)) as unsure
        from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id) claimed on true
      where p.chain_id = ${chainId} and p.status in ('granted', 'open', 'returned')
        and p.amount <> coalesce(claimed.sum, 0) and not (coalesce(claimed.unsure, false)
          and (p.amount < claimed.sum or p.status = 'returned'))
        and ${isQuiet}`,
  },
  {
    table: "payments",
    of: (chainId, isQuiet) => sql`
      select p.id, format('is called %s, by %s of %s', p.status, p.tx_hash, p.payer) as words from payments p
      where p.chain_id = ${chainId} and p.status in ('granted', 'open', 'returned', 'reversed')
        and not exists (select from claims c join transfers t on t.id = c.transfer_id left join screenings g
          on g.address = t.from_address and g.listed
          where c.payment_id = p.id and (t.reorged_at is not null or g.id is not null))
        and (not exists (select from claims c join transfers t on t.id = c.transfer_id
            where c.payment_id = p.id and t.tx_hash = p.tx_hash and t.from_address = p.payer)
          or p.status = 'reversed') and ${isQuiet}
        and (p.status <> 'reversed' or exists (select from claims c where c.payment_id = p.id))`,
  },
  {
    table: "payments",
    of: chainId => sql`
      select p.id, format('is called the merchant %s''s', p.merchant_id) as words from payments p
      where p.chain_id = ${chainId} and p.merchant_id is distinct from
        (select merchant_id from resources where id = p.resource_id)`,
  },
  {
    table: "transfers",
    of: chainId => sql`
      select t.id::text, format('is to %s, %s''s; the row %s of deposits is %s, %s''s', t.to_address, t.merchant_id,
        t.deposit_id, coalesce(d.address, 'not there'), d.merchant_id) as words
      from transfers t left join deposits d on d.id = t.deposit_id
      where t.chain_id = ${chainId} and (t.to_address, t.chain_id, t.merchant_id)
        is distinct from (d.address, d.chain_id, d.merchant_id)`,
  },
  {
    // Settlement no longer reads an applied transfer.
    table: "transfers",
    of: chainId => sql`
      select t.id::text, 'is marked as applied; no payment that is granted or returned claims it' as words from transfers t
      where t.chain_id = ${chainId} and t.applied and not exists (select from claims c join payments p on p.id = c.payment_id
        where c.transfer_id = t.id and p.status in ('granted', 'returned'))`,
  },
  {
    table: "claims",
    of: chainId => sql`
      select c.transfer_id::text as id, format('counts a row of transfers for the row %s of payments, which is of another thing', c.payment_id) as words
      from claims c left join payments p on p.id = c.payment_id left join transfers t on t.id = c.transfer_id
        left join deposits d on d.id = t.deposit_id
      where coalesce(p.chain_id, t.chain_id, ${chainId}) = ${chainId}
        and p.resource_id is distinct from d.resource_id`,
  },
  {
    // The question leaves out checkout sessions, because they add up the transfers of all senders.
    table: "claims",
    of: (chainId, isQuiet) => sql`
      select c.transfer_id::text as id, format('counts a transfer of %s for the row %s of payments, whose payer is %s', t.from_address, p.id, p.payer) as words
      from payments p join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
      where p.chain_id = ${chainId} and p.status = 'granted' and not ${isKind("p.resource_id", "cs")}
        and t.from_address <> p.payer and ${isQuiet}`,
  },
  {
    // The question covers every payment, because the amount of a returned or reversed payment does not show its claims.
    table: "claim_books",
    of: chainId => sql`
      select coalesce(b.payment_id, counted.payment_id, p.id) as id,
        format('says %s claims, of transfers whose ids add up to %s; the rows of claims are %s, which add up to %s%s',
          coalesce(b.claims::text, 'nothing of'), coalesce(b.transfer_ids, 0), coalesce(counted.n, 0),
          coalesce(counted.ids, 0), case when p.id is null then '; its payment is not there' end) as words
      from payments p full join claim_books b on b.payment_id = p.id
        full join (select payment_id, count(*) as n, sum(transfer_id) as ids from claims group by 1) counted
          on counted.payment_id = coalesce(p.id, b.payment_id)
      where coalesce(p.chain_id, ${chainId}) = ${chainId} and (p.id is null or b.payment_id is null
        or b.claims <> coalesce(counted.n, 0) or b.transfer_ids <> coalesce(counted.ids, 0))`,
  },
  {
    table: "surpluses",
    of: chainId => sql`
      select s.payment_id as id, format('says that %s of the transfer %s is %s; the transfer is %s of %s, and live returns are %s',
        s.amount, s.transfer_id, s.state, t.value, t.token, coalesce(live.sum, 0)) as words
      from surpluses s join payments p on p.id = s.payment_id left join transfers t on t.id = s.transfer_id
        left join lateral (select sum(o.amount) - (select coalesce(sum(c.given_back), 0) from claims c where c.payment_id = p.id) as sum
          from payouts o where o.payment_id = p.id and o.kind = 'return' and o.state not in ('cancelled', 'reverted')) live on true
      where p.chain_id = ${chainId} and p.status = 'granted' and t.reorged_at is null
        and ((t.deposit_id, t.token) is distinct from (s.deposit_id, s.token) or s.amount > t.value
          or (s.state = 'returned' and live.sum is distinct from s.amount) or (s.state <> 'returned' and live.sum > 0))`,
  },
  {
    // Only this row stores the deposit's salt: without the row, nobody can move the money there.
    table: "deposits",
    of: chainId => sql`
      select v.deposit_id::text as id, format('is not there, and the paywall %s is paid to it', v.paywall_id) as words
      from paywall_versions v join paywalls w on w.id = v.paywall_id left join deposits d on d.id = v.deposit_id
      where w.chain_id = ${chainId} and d.id is null
      union all
      select s.id, 'is not there, and the session of that id is paid to it' from checkout_sessions s
        left join deposits d on d.resource_id = s.id where s.chain_id = ${chainId} and s.capture = 'direct' and d.id is null`,
  },
  {
    // If an address was created before approvers existed, this version does not know its terms, so nothing else about
    // it is compared.
    table: "deposits",
    of: chainId => sql`
      select d.id::text, format('is called an address of an older factory, with %s as its approver, of the factory %s', d.approver,
        d.factory) as words
      from deposits d where d.chain_id = ${chainId} and d.older_factory <> (d.approver = ${ZERO_ADDRESS})`,
  },
  {
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('is sent to the factory %s; by the row %s of deposits it is %s', i.to_address, d.id, d.factory)
        as words
      from payouts i join deposits d on d.id = i.deposit_id
      where i.chain_id = ${chainId} and i.kind in ${outgoingKinds()} and i.to_address <> d.factory`,
  },
  {
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('is called the merchant %s''s', i.merchant_id) as words
      from payouts i left join deposits d on d.id = i.deposit_id
      where i.chain_id = ${chainId} and i.kind in ${outgoingKinds()}
        and (i.merchant_id, i.chain_id) is distinct from (d.merchant_id, d.chain_id)`,
  },
  {
    // If an address was created before approvers existed, it does not show its recipients' shares.
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('is a share of %s/10000 %% for %s; by the row %s of deposits it is %s/10000 %% for %s', i.percent_e4,
        i.recipient, i.deposit_id, coalesce(r.percent_e4::text, 'none'), coalesce(r.address, 'nobody')) as words
      from payouts i left join deposits d on d.id = i.deposit_id
        left join recipients r on r.set_id = d.recipient_set_id and r.position = i.share
      where i.chain_id = ${chainId} and i.kind = 'share' and not d.older_factory
        and (i.recipient, i.percent_e4) is distinct from (r.address, r.percent_e4)`,
  },
  {
    table: "payments",
    of: (chainId, isQuiet) => sql`
      select p.id, format('is %s; its shares are %s', p.amount, sum(i.amount)) as words
      from payouts i join payments p on p.id = i.payment_id
      where i.chain_id = ${chainId} and i.kind = 'share' and i.state not in ('cancelled', 'reverted') and p.status = 'granted'
        and not exists (select from transfers t where t.deposit_id = i.deposit_id
          and (t.state in ('seen', 'gone') or t.reorged_at is not null)) and ${isQuiet}
      group by p.id having sum(i.amount) > p.amount`,
  },
  {
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('sweeps %s; its parts are %s', i.amount, coalesce(sum(s.amount), 0)) as words
      from payouts i left join sweep_parts s on s.payout_id = i.id
      where i.chain_id = ${chainId} and i.kind = 'sweep' group by i.id having i.amount <> coalesce(sum(s.amount), 0)`,
  },
  {
    table: "sweep_parts",
    of: chainId => sql`
      select s.payout_id || '/' || s.transfer_id as id, 'is of another deposit than its sweep, or more than its transfer' as words
      from sweep_parts s left join payouts i on i.id = s.payout_id left join transfers t on t.id = s.transfer_id
      where coalesce(i.chain_id, t.chain_id, ${chainId}) = ${chainId}
        and ((t.deposit_id, t.token) is distinct from (i.deposit_id, i.token)
          or (s.amount > t.value and t.reorged_at is null))`,
  },
  {
    table: "sweep_parts",
    of: chainId => sql`
      select i.id || '/' || t.id as id, format('takes more of the transfer than it is: %s', t.value) as words
      from sweep_parts s join payouts i on i.id = s.payout_id join transfers t on t.id = s.transfer_id
      where i.chain_id = ${chainId} and i.state not in ('cancelled', 'reverted') and t.reorged_at is null
      group by t.id, i.id having (select sum(o.amount) from sweep_parts o join payouts l on l.id = o.payout_id
        where o.transfer_id = t.id and l.state not in ('cancelled', 'reverted')) > t.value`,
  },
  {
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('is %s by %s; signed for it is %s', i.state, i.tx_hash,
        (select coalesce(string_agg(format('the row %s of transaction_attempts, %s', a.id, a.hash), '; '), 'nothing') from transaction_attempts a
          where a.payout_id = coalesce(i.batch_id, i.id))) as words
      from payouts i where i.chain_id = ${chainId} and i.state in ('mined', 'final')
        and not exists (select from transaction_attempts a where a.payout_id = coalesce(i.batch_id, i.id) and a.hash = i.tx_hash)
        and not exists (select from foreign_nonces f where f.chain_id = i.chain_id and f.tx_hash = i.tx_hash)
        and not exists (select from outflows o where o.payout_id = i.id and o.tx_hash = i.tx_hash and i.kind = 'return'
          and (o.deposit_id, o.token, o.recipient, o.amount) = (i.deposit_id, i.token, i.recipient, i.amount))`,
  },
  {
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('is assigned, and nothing is signed for it') as words
      from payouts i where i.chain_id = ${chainId} and i.state = 'assigned'
        and not exists (select from transaction_attempts a where a.payout_id = coalesce(i.batch_id, i.id))`,
  },
  {
    table: "payouts",
    of: chainId => sql`
      select i.id::text, format('is %s by %s; its batch %s is %s by %s', i.state, coalesce(i.tx_hash, 'nothing'), b.id, b.state,
        coalesce(b.tx_hash, 'nothing')) as words
      from payouts i join payouts b on b.id = i.batch_id
      where i.chain_id = ${chainId} and ((i.tx_hash, i.block_hash) is distinct from (b.tx_hash, b.block_hash)
        or (i.state <> b.state and not (i.state = 'reverted' and b.state = 'final'))
        or (i.succeeded and not b.succeeded) or b.kind <> 'batch')`,
  },
  {
    table: "transaction_attempts",
    of: chainId => sql`
      select a.id::text, format('is signed with the nonce %s of %s; the row %s of payouts has %s of %s', a.nonce, a.wallet,
        a.payout_id, coalesce(i.nonce::text, 'none'), coalesce(i.wallet, 'nobody')) as words
      from transaction_attempts a left join payouts i on i.id = a.payout_id
      where a.chain_id = ${chainId} and (a.chain_id, a.wallet, a.nonce) is distinct from (i.chain_id, i.wallet, i.nonce)`,
  },
  {
    table: "transaction_attempts",
    of: chainId => sql`
      select min(a.id)::text as id, format('is one of %s that were signed for the payout %s, and %s are left', max(a.n) + 1, a.payout_id,
        count(*)) as words
      from transaction_attempts a where a.chain_id = ${chainId} group by a.payout_id having count(*) <> max(a.n) + 1`,
  },
  {
    // A halted wallet signs nothing, and its transactions are adopted from the chain in any order.
    table: "wallets",
    of: chainId => sql`
      select w.id::text, format('signs next with the nonce %s, and has signed with %s', w.next_nonce, max(a.nonce)) as words
      from wallets w join transaction_attempts a on a.chain_id = w.chain_id and a.wallet = w.address
      where w.chain_id = ${chainId} and w.status = 'active' group by w.id having max(a.nonce) >= w.next_nonce`,
  },
]

/** Returns the first wrong row of each question; an empty list if everything agrees. */
export async function checkConsistency(ctx: TxContext, chainId: number): Promise<Finding[]> {
  const found: Finding[] = []
  const isQuiet = quietAt(ctx.now())
  for (const { table, of } of questions) {
    const { rows } = await sql<{ id: string; words: string }>`${of(chainId, isQuiet)} limit 1`.execute(ctx.db)
    for (const { id, words } of rows) found.push({ table, id, words: `the row ${id} of ${table} ${words}` })
  }
  return found
}

/** Returns at most 20 deposits whose rows may explain findings about sums. */
export async function depositsBehind(ctx: Context, findings: readonly Finding[]): Promise<Row<"deposits">[]> {
  const idsOf = (name: string) => findings.filter(({ table }) => table === name).map(({ id }) => id)
  const books = idsOf("deposit_books").flatMap(id => id.split("/")[0] ?? [])
  const { rows } = await sql<Row<"deposits">>`
    select * from deposits where id = any(${sqlArray("bigint", books)} || array(
      select d.id from payments p join deposits d on d.resource_id = p.resource_id
      where p.id = any(${sqlArray("text", idsOf("payments"))}))) order by id limit 20`.execute(ctx.db)
  return rows
}
