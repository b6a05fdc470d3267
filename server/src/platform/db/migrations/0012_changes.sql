-- What changed in a merchant's lists, for pages and programs that show it at once.
--
-- Locks: the tables with a trigger here against writes until all migrations of this start are committed; no row is rewritten.
create table changes (
  merchant_id text not null,
  xid xid8 not null default pg_current_xact_id(),
  n bigint generated always as identity,
  kind text not null check (kind in ('checkout', 'payment', 'payout', 'refund', 'subscription', 'invoice', 'delivery', 'webhook', 'payout_address')),
  object_id text not null,
  at timestamptz not null default clock_timestamp(),
  primary key (merchant_id, xid, n)
) with (autovacuum_vacuum_scale_factor = 0.02);
comment on table changes is 'Which rows of the merchant''s lists changed in the last 24 hours. Triggers insert it in the transaction of the change. It has no content: a reader reads the object as it stands then, so an erasure need not come here.';
comment on column changes.xid is 'The transaction. A reader takes rows below `pg_snapshot_xmin` only: no transaction can still commit a row below those. By `n` alone, a row that commits after a greater one was read would be lost.';
-- For the one reader of a process, which follows all merchants that somebody watches.
create index changes_in_order on changes (xid, n);

-- For each row, with a condition on the trigger: most updates change nothing that a list shows, and cost a comparison then.
-- A trigger for each statement gets the old and new rows of all updates, and names no columns.
create function note_change() returns trigger language plpgsql as $$
begin
  insert into changes (merchant_id, kind, object_id) values (new.merchant_id, tg_argv[0], new.id);
  return null;
end $$;

create function note_escrow_change() returns trigger language plpgsql as $$
begin
  insert into changes (merchant_id, kind, object_id) values (new.merchant_id, 'payment', new.session_id);
  return null;
end $$;

create function note_surplus_change() returns trigger language plpgsql as $$
begin
  insert into changes (merchant_id, kind, object_id) select p.merchant_id, 'payment', p.id from payments p where p.id = new.payment_id;
  return null;
end $$;

-- What a refund, a facilitator's settlement shows follows its call.
create function note_call_change() returns trigger language plpgsql as $$
begin
  insert into changes (merchant_id, kind, object_id)
    select r.merchant_id, 'refund', r.id from refunds r where new.kind = 'refund' and r.payout_id = new.id
    union all select s.merchant_id, 'payment', s.id from settlements s where new.kind = 'settle' and s.payout_id = new.id;
  return null;
end $$;

create function note_address_change() returns trigger language plpgsql as $$
begin
  insert into changes (merchant_id, kind, object_id) values (new.merchant_id, 'payout_address', new.chain_id);
  return null;
end $$;

create trigger checkout_sessions_note_made after insert on checkout_sessions for each row execute function note_change('checkout');
create trigger checkout_sessions_note_changed
  after update of status, exception, received, message, payer, tx_hash, confirmed_at, expires_at, description, customer_email, metadata, erased_at
  on checkout_sessions for each row
  when ((new.status, new.exception, new.received, new.message, new.payer, new.tx_hash, new.confirmed_at, new.expires_at, new.description,
      new.customer_email, new.metadata, new.erased_at)
    is distinct from (old.status, old.exception, old.received, old.message, old.payer, old.tx_hash, old.confirmed_at, old.expires_at,
      old.description, old.customer_email, old.metadata, old.erased_at))
  execute function note_change('checkout');

create trigger payments_note_made after insert on payments for each row execute function note_change('payment');
create trigger payments_note_changed after update of status, exception, amount, tx_hash, payer, accepted_at, returned_at, returned_to on payments
  for each row
  when ((new.status, new.exception, new.amount, new.tx_hash, new.payer, new.accepted_at, new.returned_at, new.returned_to)
    is distinct from (old.status, old.exception, old.amount, old.tx_hash, old.payer, old.accepted_at, old.returned_at, old.returned_to))
  execute function note_change('payment');
create trigger surpluses_note_change after insert or update of state, amount on surpluses for each row execute function note_surplus_change();
create trigger escrows_note_change after update of authorized, captured, voided, refunded, reclaimed on escrows for each row
  when ((new.authorized, new.captured, new.voided, new.refunded, new.reclaimed)
    is distinct from (old.authorized, old.captured, old.voided, old.refunded, old.reclaimed))
  execute function note_escrow_change();
create trigger settlements_note_made after insert on settlements for each row execute function note_change('payment');
create trigger settlements_note_changed after update of failed_at, found_hash on settlements for each row
  when ((new.failed_at, new.found_hash) is distinct from (old.failed_at, old.found_hash)) execute function note_change('payment');

create trigger payouts_note_made after insert on payouts for each row
  when (new.kind in ('share', 'sweep', 'return', 'capture')) execute function note_change('payout');
create trigger payouts_note_changed after update of state, held_reason, amount, recipient, tx_hash, gas_cost on payouts for each row
  when (new.kind in ('share', 'sweep', 'return', 'capture')
    and (new.state, new.held_reason, new.amount, new.recipient, new.tx_hash, new.gas_cost)
      is distinct from (old.state, old.held_reason, old.amount, old.recipient, old.tx_hash, old.gas_cost))
  execute function note_change('payout');
create trigger payouts_note_call after update of state, held_reason, tx_hash on payouts for each row
  when (new.kind in ('refund', 'settle')
    and (new.state, new.held_reason, new.tx_hash) is distinct from (old.state, old.held_reason, old.tx_hash))
  execute function note_call_change();

create trigger refunds_note_made after insert on refunds for each row execute function note_change('refund');
create trigger refunds_note_changed after update of status, reason on refunds for each row
  when ((new.status, new.reason) is distinct from (old.status, old.reason)) execute function note_change('refund');

create trigger subscriptions_note_made after insert on subscriptions for each row
  when (new.started_at is not null) execute function note_change('subscription');
create trigger subscriptions_note_changed
  after update of status, started_at, paid_until, access_until, product_id, customer_email, paused_at, canceled_at, cancel_at_period_end,
    cancel_reason, blocked_by, ended_at
  on subscriptions for each row
  when (new.started_at is not null and (new.status, new.started_at, new.paid_until, new.access_until, new.product_id, new.customer_email,
      new.paused_at, new.canceled_at, new.cancel_at_period_end, new.cancel_reason, new.blocked_by, new.ended_at)
    is distinct from (old.status, old.started_at, old.paid_until, old.access_until, old.product_id, old.customer_email,
      old.paused_at, old.canceled_at, old.cancel_at_period_end, old.cancel_reason, old.blocked_by, old.ended_at))
  execute function note_change('subscription');
create trigger invoices_note_made after insert on invoices for each row
  when (new.period_start is not null) execute function note_change('invoice');
create trigger invoices_note_changed after update of period_start, period_end, paid_at, voided_at, due_at on invoices for each row
  when (new.period_start is not null and (new.period_start, new.period_end, new.paid_at, new.voided_at, new.due_at)
    is distinct from (old.period_start, old.period_end, old.paid_at, old.voided_at, old.due_at))
  execute function note_change('invoice');

create trigger deliveries_note_made after insert on deliveries for each row execute function note_change('delivery');
create trigger deliveries_note_changed after update of status, attempts on deliveries for each row
  when ((new.status, new.attempts) is distinct from (old.status, old.attempts)) execute function note_change('delivery');
create trigger webhooks_note_made after insert on webhooks for each row execute function note_change('webhook');
create trigger webhooks_note_changed after update of url, description, events, active, disabled_reason, failing_since, deleted_at on webhooks
  for each row
  when ((new.url, new.description, new.events, new.active, new.disabled_reason, new.failing_since, new.deleted_at)
    is distinct from (old.url, old.description, old.events, old.active, old.disabled_reason, old.failing_since, old.deleted_at))
  execute function note_change('webhook');
create trigger payout_addresses_note_change after insert or update on payout_addresses for each row execute function note_address_change();
