-- Who asked for the end of a subscription, why its next invoice can't be made, and how often it could not be advanced.
--
-- Locks: `subscriptions` against reads and writes until all migrations of this start are committed.
alter table subscriptions
  add column cancel_asked_by text check (cancel_asked_by in ('merchant', 'subscriber', 'both')),
  add column blocked_by text check (blocked_by in ('payments_paused', 'payout_address', 'price')),
  -- Rounds since the last in which it was advanced: three are an alarm.
  add column failed_rounds integer not null default 0;
-- Who asked is not known of what was asked before: its merchant alone takes it back.
update subscriptions set cancel_asked_by = 'merchant' where cancel_at_period_end;
alter table subscriptions add constraint subscriptions_end_asked check (not cancel_at_period_end or cancel_asked_by is not null);
create index subscriptions_failing on subscriptions (chain_id) where failed_rounds >= 3;

-- What nobody has paid for yet begins with a confirmed session: until then, no session of it makes it due.
create or replace function wake_subscription() returns trigger language plpgsql as $$
begin
  update subscriptions set run_at = new.updated_at
    where id = (select subscription_id from invoices where session_id = new.id)
      and (started_at is not null or new.status = 'confirmed');
  return null;
end $$;
