-- Refunds of payments through escrow, out of the merchant's own wallet to the payer; and escrows in the merchant's lists.

-- One refund is one call. A call that failed for good is a refund that failed, and its merchant asks for another.
create table refunds (
  id text primary key check (starts_with(id, 're_')),
  session_id text not null references escrows,
  merchant_id text not null references merchants,
  amount base_units not null check (amount > 0),
  reason text check (char_length(reason) between 1 and 500),
  payout_id uuid not null unique references payouts,
  -- What the chain says of its call; a reorg leads from succeeded back to pending.
  status text not null default 'pending' check (status in ('pending', 'succeeded', 'failed')),
  -- When its merchant was notified: once, whatever a reorg does afterwards.
  notified_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index refunds_of_session on refunds (session_id);
create index refunds_of_merchant on refunds (merchant_id, created_at desc, id desc);

-- A refund waits until its merchant's wallet allows it, and holds enough.
alter table payouts drop constraint payouts_held_reason_check,
  add constraint payouts_held_reason_check check (held_reason in
    ('short', 'sanctions', 'simulation', 'low_gas', 'reverted', 'gas_budget', 'allowance', 'balance'));
-- The wallets whose refunds are under way: one at a time.
create index payouts_open_refunds on payouts (escrow_id) where kind = 'refund' and state in ('queued', 'held', 'assigned');
create index escrows_of_merchant on escrows (merchant_id, escrow);
create index escrows_paid on escrows (chain_id, session_id) where auth_id is not null;
-- The order of the merchant's list, so that a page reads no more than its rows.
create index escrows_listed on escrows (merchant_id, authorized_at desc, session_id desc) where authorized > 0;
create index payouts_of_escrows on payouts (merchant_id, created_at desc, (id::text) desc) where kind in ('capture', 'void');

-- When it was first known that the payer took back what was left: the chain says so, and no call of ours.
alter table escrows add column reclaimed_at timestamptz;
create function set_reclaimed() returns trigger language plpgsql as $$
begin
  new.reclaimed_at := case when new.reclaimed > 0 then coalesce(old.reclaimed_at, new.updated_at) end;
  return new;
end $$;
create trigger escrows_set_reclaimed before update of reclaimed on escrows for each row execute function set_reclaimed();
create index escrows_reclaimed on escrows (merchant_id, reclaimed_at desc, session_id desc) where reclaimed > 0;

create or replace view transactions as
  select id, merchant_id, case when agent then 'agent' else 'payment' end as type, status, exception, chain_id,
    token::text as token, amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer,
    null::text as recipient, resource_id, id as payment_id, created_at
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, d.resource_id, i.payment_id, i.created_at
  from payouts i left join deposits d on d.id = i.deposit_id where i.lane = 'payout'
  union all
  -- What was moved for another server, to an address that is not ours; at ours it is a payment.
  select s.id, s.merchant_id, 'agent', i.state, null, s.chain_id, s.token::text, s.amount::numeric(78,0),
    coalesce(s.found_hash, i.tx_hash)::text, s.payer::text, s.pay_to::text, null, null, s.created_at
  from settlements s join payouts i on i.id = s.payout_id
  where s.resource_id is null
    and not exists (select from deposits d where d.chain_id = s.chain_id and d.address = s.pay_to)
  union all
  -- A payment through escrow, with the state of its session; then what became of it.
  select e.session_id, e.merchant_id, 'payment', s.status, null, e.chain_id, e.token::text, e.authorized::numeric(78,0),
    i.tx_hash::text, e.payer::text, null, e.session_id, null, e.authorized_at
  from escrows e join checkout_sessions s on s.id = e.session_id
    left join payouts i on i.escrow_id = e.session_id and i.kind = 'reserve' and i.state in ('mined', 'final')
  where e.authorized > 0
  union all
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, i.escrow_id, null, i.created_at
  from payouts i where i.kind in ('capture', 'void')
  union all
  select r.id, r.merchant_id, 'refund', i.state, null, i.chain_id, i.token::text, r.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, r.session_id, null, r.created_at
  from refunds r join payouts i on i.id = r.payout_id;

-- `failed`: mined without moving anything. A refund passes through: out of the merchant's wallet, and on to the payer.
create or replace view movements as
  select id::text as id, merchant_id, 'in'::text as direction, null::text as reason, state, chain_id, deposit_id,
    token::text as token, value::numeric(78,0) as amount, from_address::text as sender, to_address::text as recipient,
    tx_hash::text as tx_hash, block_number, block_time as at, id as transfer_id, null::uuid as payout_id,
    null::text as payment_id, null::text as escrow_id, false as failed
  from transfers
  union all
  select id::text, merchant_id, case kind when 'reserve' then 'in' when 'refund' then 'through' else 'out' end, kind, state,
    chain_id, deposit_id, token::text, amount::numeric(78,0), payer::text, recipient::text, tx_hash::text, block_number,
    mined_at, null, id, payment_id, escrow_id, succeeded is false
  from payouts
  union all
  -- No condition, so that an index gives the order; what a payout says is not among the reasons of `books`.
  select id::text, merchant_id, 'out', case when payout_id is null then reason else 'carried_out' end, 'final', chain_id,
    deposit_id, token::text, amount::numeric(78,0), null, recipient::text, tx_hash::text, block_number, block_time, null,
    null, null, null, false
  from outflows
  union all
  select session_id, merchant_id, 'out', 'reclaim', 'final', chain_id, null, token::text, reclaimed::numeric(78,0), null,
    payer::text, null, null, reclaimed_at, null, null, null, session_id, false
  from escrows where reclaimed > 0;

create or replace view books as select * from movements
  where state in ('confirmed', 'mined', 'final') and at is not null and not failed
    and (reason is null or reason in ('share', 'sweep', 'return', 'recovery', 'given_back', 'unknown', 'reserve', 'capture',
      'void', 'refund', 'reclaim'));
