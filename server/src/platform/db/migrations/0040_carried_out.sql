-- Locks: `outflows` and `payouts` against reads and writes until all migrations of this start are committed. Every payout is read once.

-- What a merchant gave back itself may be a return that the service was asked for, or a payment that waits: its nonce says so.
-- The outflow stays as the evidence, and the return counts in its place.
alter table outflows add column nonce evm_hash, add column payout_id uuid references payouts;
create unique index outflows_of_payout on outflows (payout_id) where payout_id is not null;
create index outflows_given_back on outflows (deposit_id, token) where reason = 'given_back' and payout_id is null;

-- A return that somebody else's transaction carried out is final without a nonce of ours.
alter table payouts drop constraint payouts_check1,
  add constraint payouts_nonce_by_state check ((state in ('queued', 'held', 'cancelled')) = (nonce is null)
    or (kind = 'return' and state = 'final' and nonce is null));

create or replace function room_in(deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(withheld(s.transfer_id, '{open}')) from surpluses s
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
    - coalesce((select sum(o.amount) from outflows o where o.deposit_id = $1 and o.token = $2
        and o.reason <> 'unknown' and o.payout_id is null), 0)
$$;

create or replace view movements as
  select id::text as id, merchant_id, 'in'::text as direction, null::text as reason, state, chain_id, deposit_id,
    token::text as token, value::numeric(78,0) as amount, from_address::text as sender, to_address::text as recipient,
    tx_hash::text as tx_hash, block_number, block_time as at, id as transfer_id, null::uuid as payout_id,
    null::text as payment_id
  from transfers
  union all
  select id::text, merchant_id, 'out', kind, state, chain_id, deposit_id, token::text, amount::numeric(78,0), null,
    recipient::text, tx_hash::text, block_number, mined_at, null, id, payment_id
  from payouts
  union all
  -- No condition, so that an index gives the order; what a payout says is not among the reasons of `books`.
  select id::text, merchant_id, 'out', case when payout_id is null then reason else 'carried_out' end, 'final', chain_id,
    deposit_id, token::text, amount::numeric(78,0), null, recipient::text, tx_hash::text, block_number, block_time, null,
    null, null
  from outflows;
