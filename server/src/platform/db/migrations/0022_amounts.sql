-- The list of transactions finds an exact amount. No index has the view's `amount`, which is a cast that changes the type's precision, so
-- `units` is the same number as the tables' indexes have it. Received payments have such an index since migration 0008.
create or replace view transactions as
  select id, merchant_id, type, status, exception, chain_id, token, amount, tx_hash, payer, recipient, resource_id, payment_id, created_at,
    source, payout_id, out_of, units
  from (
  select id, merchant_id, case when agent then 'agent' else 'payment' end as type, status, exception, chain_id,
    token::text as token, amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer,
    null::text as recipient, resource_id, id as payment_id, created_at, 'payments'::text as source,
    null::uuid as payout_id, null::bigint as out_of, true as listed, amount::numeric as units
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, (select d.resource_id from deposits d where d.id = i.deposit_id), i.payment_id,
    i.created_at, 'payouts', i.id, i.deposit_id, i.lane = 'payout' and i.kind <> 'anchor', i.amount::numeric
  from payouts i
  union all
  -- What was moved for another server, to an address that is not ours; at ours it is a payment.
  select s.id, s.merchant_id, 'agent', (select i.state from payouts i where i.id = s.payout_id), null, s.chain_id, s.token::text,
    s.amount::numeric(78,0), coalesce(s.found_hash, (select i.tx_hash from payouts i where i.id = s.payout_id))::text,
    s.payer::text, s.pay_to::text, null, null, s.created_at, 'settlements', null, null,
    s.resource_id is null and not exists (select from deposits d where d.chain_id = s.chain_id and d.address = s.pay_to),
    s.amount::numeric
  from settlements s
  union all
  -- A payment through escrow, with the state of its session; then what became of it.
  select e.session_id, e.merchant_id, 'payment', (select s.status from checkout_sessions s where s.id = e.session_id), null,
    e.chain_id, e.token::text, e.authorized::numeric(78,0),
    (select i.tx_hash from payouts i where i.escrow_id = e.session_id and i.kind = 'reserve' and i.state in ('mined', 'final'))::text,
    e.payer::text, null, e.session_id, null, e.authorized_at, 'escrows', null, null, e.authorized > 0, e.authorized::numeric
  from escrows e
  union all
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, i.escrow_id, null, i.created_at, 'calls', i.id, null, i.kind in ('capture', 'void'),
    i.amount::numeric
  from payouts i
  union all
  select r.id, r.merchant_id, 'refund', (select i.state from payouts i where i.id = r.payout_id), null,
    (select i.chain_id from payouts i where i.id = r.payout_id), (select i.token from payouts i where i.id = r.payout_id)::text,
    r.amount::numeric(78,0), (select i.tx_hash from payouts i where i.id = r.payout_id)::text, null,
    (select i.recipient from payouts i where i.id = r.payout_id)::text, r.session_id, null, r.created_at, 'refunds', null, null,
    true, r.amount::numeric
  from refunds r
  ) parts where listed;
comment on column transactions.units is 'The amount as indexes have it: a condition on `amount` would read all of a merchant''s rows.';

-- Each index follows a part of the view, so that a page reads only its own rows, in the order of the list. Of 200,000 payouts the index takes
-- 22 MB, as the one by kind does.
--
-- Locks: writes of each table wait while its indexes are built, about a second for a million rows.
create index escrows_of_amount on escrows (merchant_id, authorized, authorized_at desc, session_id desc) where authorized > 0;
create index settlements_of_amount on settlements (merchant_id, amount, created_at desc, id desc) where resource_id is null;
create index payouts_of_amount on payouts (merchant_id, amount, created_at desc, (id::text) desc) where lane = 'payout' and kind <> 'anchor';
create index payouts_of_call_amount on payouts (merchant_id, amount, created_at desc, (id::text) desc) where kind in ('capture', 'void');
create index refunds_of_amount on refunds (merchant_id, amount, created_at desc, id desc);
