-- Receipts in 0G's storage: a lane of the payout engine on 0G's chain, with a wallet of its own.
--
-- Locks: `payouts` and `wallets` against reads and writes until all migrations of this start are committed; no row is rewritten, but
-- these constraints are checked anew.
alter table wallets
  drop constraint wallets_lane_check,
  add constraint wallets_lane_check check (lane in ('payout', 'relay', 'storage'));

-- A call that has 0G's contract keep a file of receipts. It moves nobody's money but the fee of the storage.
alter table payouts
  drop constraint payouts_kind_check, drop constraint payouts_lane, drop constraint payouts_deposit, drop constraint payouts_reserved,
  drop constraint payouts_nonce_by_state,
  add constraint payouts_kind_check check (kind in ('share', 'sweep', 'return', 'authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund', 'anchor', 'store')),
  add constraint payouts_lane check (lane = case
    when kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay'
    when kind = 'store' then 'storage' else 'payout' end),
  add constraint payouts_deposit check (deposit_id is not null or kind in ('settle', 'batch', 'anchor', 'store') or escrow_id is not null),
  add constraint payouts_reserved check (case when lane = 'relay' or kind in ('anchor', 'store') then not reserved
    else reserved or state in ('held', 'cancelled') end),
  -- A call for a file that an operator found on the chain, at a nonce that another payout has, has none.
  add constraint payouts_nonce_by_state check ((state in ('queued', 'held', 'cancelled')) = (nonce is null and batch_id is null)
    or kind in ('return', 'store') and state = 'final' and nonce is null);

create or replace function set_lane() returns trigger language plpgsql as $$
begin
  new.lane := case when new.kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay'
    when new.kind = 'store' then 'storage' else 'payout' end;
  return new;
end $$;

alter table receipt_batches
  add column storage_id uuid references payouts,
  add column storage_seq bigint,
  add column uploaded_at timestamptz,
  add column storage_tries integer not null default 0,
  add column storage_run_at timestamptz,
  add constraint receipt_batches_uploaded check ((storage_seq is null) = (uploaded_at is null) and (uploaded_at is null or storage_id is not null));
comment on column receipt_batches.storage_id is 'The newest call that has 0G keep it; null where it is in no other store than ours.';
comment on column receipt_batches.storage_seq is 'Its number among all files of 0G.';
comment on column receipt_batches.uploaded_at is 'When 0G''s nodes had proven that they have it.';
comment on column receipt_batches.storage_tries is 'How often bringing it to 0G failed.';
comment on column receipt_batches.storage_run_at is 'Before this it is not brought to 0G: a try failed, or one goes on; null: at once.';
create index receipt_batches_of_storage on receipt_batches (storage_id) where storage_id is not null;
create index receipt_batches_not_uploaded on receipt_batches (n) where uploaded_at is null;

-- A key that another has replaced is revoked on the chain, once everything that it signed is written there.
alter table receipt_keys add column revoke_id uuid references payouts;
comment on column receipt_keys.revoke_id is 'The call that revokes it on the chain.';
alter table operator_actions
  drop constraint operator_actions_action_check,
  add constraint operator_actions_action_check check (action in ('halt', 'resume', 'adopt', 'adopt foreign', 'unstick', 'retry', 'cancel', 'rotate receipt key'));

-- What is written to the chain of receipts moves no merchant's money, so no list of a merchant's transactions has it.
create or replace view transactions as
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
    i.created_at, 'payouts', i.id, i.deposit_id, i.lane = 'payout' and i.kind <> 'anchor'
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
