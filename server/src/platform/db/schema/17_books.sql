-- 17_books

create table outflows (
  id uuid default gen_random_uuid() primary key,
  chain_id integer not null,
  deposit_id bigint not null references deposits,
  merchant_id text not null references merchants,
  reason text not null check (reason in ('recovery', 'given_back', 'unknown')),
  tx_hash evm_hash not null,
  token evm_address not null,
  recipient evm_address not null,
  amount base_units not null check (amount > 0),
  block_number bigint not null,
  block_hash evm_hash not null,
  log_index integer not null,
  block_time timestamptz not null,
  created_at timestamptz not null,
  nonce evm_hash,
  payout_id uuid references payouts,
  unique (chain_id, tx_hash, log_index)
);
comment on table outflows is
  'A transfer out of a deposit without a payout: recovered by its owner, given back with the approver''s signature, '
  'or unknown.';
comment on column outflows.nonce is 'The nonce of the approver''s signature, if the money was given back.';
comment on column outflows.payout_id is 'The return that this outflow carried out.';
create index outflows_given_back on outflows (deposit_id, token) where reason = 'given_back' and payout_id is null;
create index outflows_of_deposit on outflows (deposit_id);
create index outflows_of_merchant on outflows (merchant_id, block_time desc, (id::text) desc);
create unique index outflows_of_payout on outflows (payout_id) where payout_id is not null;

create table outflow_watches (
  chain_id integer primary key,
  block_number bigint not null,
  read_at timestamptz not null,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz
);
comment on table outflow_watches is
  'How far the reports of the factories are read (`reconciliation/watch-outflows.ts`). Whoever has the payout key '
  'can send the money of deposits whose approver is the service to anyone, and the factory reports that in the same '
  'block.';
comment on column outflow_watches.read_at is 'When all blocks up to the scan''s were last read.';

create table noticed_outflows (
  chain_id integer not null,
  tx_hash text not null,
  deposit text not null,
  noticed_at timestamptz not null,
  primary key (chain_id, tx_hash, deposit)
);
comment on table noticed_outflows is
  'An outflow that halted the payout wallets when it happened. The comparison of the final blocks records it and '
  'does not halt them again.';

create table reconciliations (
  chain_id integer primary key,
  hour_at timestamptz not null,
  moved_number bigint,
  pass_at timestamptz not null,
  deposit_position bigint,
  transfer_position bigint,
  payout_position uuid,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  moved_to bigint,
  moved_position bigint,
  constraint reconciliations_moved_part check ((moved_to is null) = (moved_position is null))
);
comment on table reconciliations is
  'How far the books of a network are compared with themselves and with the chain, and which process compares them.';
comment on column reconciliations.hour_at is 'When what moved is compared next.';
comment on column reconciliations.moved_number is
  'The last block up to which the balances of deposits where something moved are compared.';
comment on column reconciliations.pass_at is
  'When everything is compared next; the positions are where that continues, null between two.';
comment on column reconciliations.moved_to is
  'The block at which that goes on now; `moved_position` is the deposit up to which it is done. Null between two.';

create view movements as
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
comment on view movements is
  'All transfers that happened or may happen. Its parts have no conditions, so that a page of `books` is read from '
  'an index of each, in order; with conditions Postgres reads and sorts all of them.';

create view books as select * from movements
  where state in ('confirmed', 'mined', 'final') and at is not null and not failed
    and (reason is null or reason in ('share', 'sweep', 'return', 'recovery', 'given_back', 'unknown', 'reserve', 'capture',
      'void', 'refund', 'reclaim'));
comment on view books is 'Every transfer into and out of deposits and escrows.';
comment on column books.direction is '`through`: out of a merchant''s wallet and on to a payer.';
comment on column books.reason is 'Null for a transfer to a deposit.';
comment on column books.deposit_id is 'Null for a row of an escrow.';
comment on column books.tx_hash is 'Null, like its block, for what a payer took back without the service.';
comment on column books.escrow_id is 'The session of an escrow; null for a row of a deposit.';
comment on column books.failed is 'Always false: a transaction that was mined without moving anything is left out.';

create view transactions as
  select id, merchant_id, type, status, exception, chain_id, token, amount, tx_hash, payer, recipient, resource_id, payment_id, created_at,
    source, payout_id, out_of
  from (
  select id, merchant_id, case when agent then 'agent' else 'payment' end as type, status, exception, chain_id,
    token::text as token, amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer,
    null::text as recipient, resource_id, id as payment_id, created_at, 'payments'::text as source,
    null::uuid as payout_id, null::bigint as out_of, true as listed
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, (select d.resource_id from deposits d where d.id = i.deposit_id), i.payment_id,
    i.created_at, 'payouts', i.id, i.deposit_id, i.lane = 'payout'
  from payouts i
  union all
  -- What was moved for another server, to an address that is not ours; at ours it is a payment.
  select s.id, s.merchant_id, 'agent', (select i.state from payouts i where i.id = s.payout_id), null, s.chain_id, s.token::text,
    s.amount::numeric(78,0), coalesce(s.found_hash, (select i.tx_hash from payouts i where i.id = s.payout_id))::text,
    s.payer::text, s.pay_to::text, null, null, s.created_at, 'settlements', null, null,
    s.resource_id is null and not exists (select from deposits d where d.chain_id = s.chain_id and d.address = s.pay_to)
  from settlements s
  union all
  -- A payment through escrow, with the state of its session; then what became of it.
  select e.session_id, e.merchant_id, 'payment', (select s.status from checkout_sessions s where s.id = e.session_id), null,
    e.chain_id, e.token::text, e.authorized::numeric(78,0),
    (select i.tx_hash from payouts i where i.escrow_id = e.session_id and i.kind = 'reserve' and i.state in ('mined', 'final'))::text,
    e.payer::text, null, e.session_id, null, e.authorized_at, 'escrows', null, null, e.authorized > 0
  from escrows e
  union all
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, i.escrow_id, null, i.created_at, 'calls', i.id, null, i.kind in ('capture', 'void')
  from payouts i
  union all
  select r.id, r.merchant_id, 'refund', (select i.state from payouts i where i.id = r.payout_id), null,
    (select i.chain_id from payouts i where i.id = r.payout_id), (select i.token from payouts i where i.id = r.payout_id)::text,
    r.amount::numeric(78,0), (select i.tx_hash from payouts i where i.id = r.payout_id)::text, null,
    (select i.recipient from payouts i where i.id = r.payout_id)::text, r.session_id, null, r.created_at, 'refunds', null, null,
    true
  from refunds r
  ) parts where listed;
comment on view transactions is 'Payments and payouts in one list.';
comment on column transactions.status is 'For a payment through escrow, its session''s status.';
comment on column transactions.resource_id is 'Null if an agent paid another server.';
comment on column transactions.source is 'The table, or the kind of payouts, of the row.';
comment on column transactions.out_of is 'The deposit that a payout takes the money from.';

-- What a deposit holds beyond its promises, without what waits for the merchant. Below zero after a reorg. An open surplus
-- counts once, where its own payment is granted and claims the transfer.
create function room_in(deposit bigint, token text) returns numeric language plpgsql stable as $$
begin
  return coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(s.amount) from surpluses s
        join payments p on p.id = s.payment_id and p.status = 'granted'
        join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
    - coalesce((select sum(o.amount) from outflows o where o.deposit_id = $1 and o.token = $2
        and o.reason <> 'unknown' and o.payout_id is null), 0);
end $$;
