-- Listeners: endpoints without a URL, whose deliveries somebody pulls.
--
-- Locks: `webhooks` and `merchants` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table webhooks drop constraint webhooks_id_check;
alter table webhooks add constraint webhooks_id_check check (id ~ '^(c|lsn_)[a-z0-9]{24}$');
alter table webhooks add column pulled_at timestamptz;
comment on column webhooks.pulled_at is 'Of a listener, when somebody last asked for its deliveries, by the database''s clock; null for an endpoint that has a URL.';
alter table webhooks add column copies_callbacks boolean not null default false;
comment on column webhooks.copies_callbacks is 'A listener that also gets a copy of what is sent to callback URLs.';
alter table webhooks add constraint webhooks_listener_check
  check ((pulled_at is not null) = starts_with(id, 'lsn_') and (pulled_at is not null or not copies_callbacks));

-- Not by `pulled_at`: an index that has it, or a condition on it, would make each update of it write every index.
create index webhooks_listeners on webhooks (merchant_id, created_at desc, id desc) where starts_with(id, 'lsn_') and deleted_at is null;

drop trigger webhooks_audit_made on webhooks;
create trigger webhooks_audit_made after insert or delete on webhooks for each row
  execute function write_audit_entry('webhook', 'id', 'url,description,events,active,copies_callbacks', '');

alter table merchants add column live_listeners boolean not null default false;
comment on column merchants.live_listeners is 'Whether listeners can be made in live mode.';
drop trigger merchants_audit on merchants;
create trigger merchants_audit after insert or update on merchants for each row
  execute function write_audit_entry('settings', 'merchant_id', 'name,email,wallet_lock,approver,refund_per_day,return_per_day,currency,live_listeners', '');
