-- Events, and how merchants get them.

create table webhooks (
  id text primary key check (id ~ '^c[a-z0-9]{24}$'),
  merchant_id text not null references merchants,
  url text not null check (char_length(url) <= 2048),
  description text,
  events jsonb not null,
  active boolean not null,
  disabled_reason text check (disabled_reason in ('gone', 'failing')),
  failing_since timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  deleted_at timestamptz,
  constraint webhooks_check check (not active or disabled_reason is null and deleted_at is null)
);
comment on table webhooks is 'Endpoints of merchants.';
comment on column webhooks.disabled_reason is
  'Why the service switched it off: it answered 410, or has failed for days.';
comment on column webhooks.failing_since is 'Since when every attempt has failed.';
create index webhooks_of_merchant on webhooks (merchant_id, created_at desc, id desc) where deleted_at is null;
-- A job skips what waits for endpoints that are paused or deleted, and asks for these each minute.
create index webhooks_paused on webhooks (id) where not active;

create table webhook_secrets (
  id bigint generated always as identity primary key,
  merchant_id text not null references merchants,
  webhook_id text references webhooks,
  sealed text not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  shown_at timestamptz
);
comment on table webhook_secrets is
  'Signing secrets, encrypted: of a webhook, or of the account if there is none. A replaced one is valid until it '
  'expires.';
comment on column webhook_secrets.shown_at is 'When it was shown: it is shown once.';
create index webhook_secrets_expired on webhook_secrets (expires_at) where expires_at is not null;
create unique index webhook_secrets_newest on webhook_secrets (merchant_id, coalesce(webhook_id, '')) where expires_at is null;
create index webhook_secrets_of on webhook_secrets (webhook_id, merchant_id);

create table events (
  id text primary key,
  merchant_id text not null,
  type text not null,
  dedupe_key text not null,
  body text not null,
  created_at timestamptz not null,
  traceparent text,
  unique (merchant_id, dedupe_key)
);
comment on table events is
  'What merchants are notified of. An event and its deliveries are written in the transaction of what they report.';
comment on column events.dedupe_key is 'What happens once has one event, however often it is reported.';
comment on column events.body is 'The body as every attempt sends it, byte for byte.';
create index events_of_merchant on events (merchant_id, created_at desc, id desc);
create index events_of_type on events (merchant_id, type, created_at desc, id desc);
create index events_old on events (created_at);

create table deliveries (
  id text primary key,
  seq bigint generated always as identity,
  event_id text not null,
  merchant_id text not null,
  webhook_id text,
  url text,
  lane text not null,
  order_key text not null,
  status text not null check (status in ('pending', 'delivered', 'failed', 'skipped')),
  by_hand boolean not null default false,
  attempts integer not null default 0,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (event_id, webhook_id),
  constraint deliveries_check check (webhook_id is not null or url is not null)
) with (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 50);
comment on table deliveries is 'An event for one endpoint. The row is the job that sends it.';
comment on column deliveries.webhook_id is
  'The endpoint, or null for a callback to `url`. With both, `url` is where the endpoint was when this was emitted.';
comment on column deliveries.lane is 'What shares a turn and a number of connections.';
comment on column deliveries.order_key is 'What is delivered in order: a payment, a session.';
comment on column deliveries.by_hand is 'The merchant asked for it: it is sent although the endpoint is paused.';
comment on column deliveries.attempts is 'A resend counts from zero again.';
create index deliveries_due on deliveries (lane, run_at) where status = 'pending';
-- All deliveries of a merchant are listed, those to a callback URL too, and those of one session.
create index deliveries_of_merchant on deliveries (merchant_id, created_at desc, id desc);
create index deliveries_of_order on deliveries (merchant_id, order_key);
create index deliveries_of_webhook on deliveries (webhook_id, created_at desc, id desc);
create index deliveries_unsent on deliveries (merchant_id, status, created_at desc, id desc) where status in ('failed', 'skipped');
create index deliveries_untried on deliveries (lane, order_key, seq) where status = 'pending' and attempts = 0;

create table delivery_attempts (
  id bigint generated always as identity,
  delivery_id text not null,
  started_at timestamptz not null,
  duration_ms integer not null,
  status integer,
  error text,
  answer text,
  primary key (delivery_id, id)
);
comment on table delivery_attempts is
  'Each request to an endpoint. delivery_id has no foreign key: the statement that writes an attempt has just '
  'written its delivery, and the check would lock that row once more.';
comment on column delivery_attempts.status is 'The status of the response; null if there was none.';
comment on column delivery_attempts.error is 'Why it failed, in words.';
comment on column delivery_attempts.answer is 'The first 4 KB of the response.';

-- Deletes the deliveries of an event that is deleted, whichever version's process deletes it.
create function forget_deliveries() returns trigger language plpgsql as $$
begin
  delete from deliveries d using gone where d.event_id = gone.id;
  return null;
end $$;

create trigger events_forget_deliveries after delete on events referencing old table as gone
  for each statement execute function forget_deliveries();
