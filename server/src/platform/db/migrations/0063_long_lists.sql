-- A page of the transactions read and sorted all of a merchant's payouts: 4 s of a million. As in `books` (0048), the parts of the view have
-- neither joins nor conditions, so that each is read by its own index in the order of the list, and only as far as the page goes.
--
-- Locks: `transactions` is replaced. While their indexes are built, `grants`, `payouts`, `events`, `deliveries` and `audit_entries` can be
-- read and not written to: two seconds for each million rows. They are taken first, in the order in which an older process writes to them.
lock table grants, payouts, events, deliveries, audit_entries in share mode;

-- The last columns are for filters: by `source` the planner leaves other parts out, and payouts are found by their own key or their deposit's.
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

-- A filter that few rows match read all of a merchant's rows: half a second to two seconds of a million.
create index grants_of_paywall on grants (paywall_id, granted_at desc, id desc);
create index payouts_of_kind on payouts (merchant_id, kind, created_at desc, (id::text) desc) where lane = 'payout';
-- Nearly all payouts are final in the end, and of those the order of time finds a page at once.
create index payouts_of_state on payouts (merchant_id, state, created_at desc, (id::text) desc) where lane = 'payout' and state <> 'final';
create index events_of_type on events (merchant_id, type, created_at desc, id desc);
create index deliveries_unsent on deliveries (merchant_id, status, created_at desc, id desc) where status in ('failed', 'skipped');
create index audit_entries_of_action on audit_entries (merchant_id, action, at, n);
create index audit_entries_of_kind on audit_entries (merchant_id, actor_kind, at, n);
create index audit_entries_of_actor on audit_entries (merchant_id, actor_id, at, n);
