-- Events, and their way to the merchants' endpoints. An event and its deliveries are written in the transaction that
-- causes them; a delivery is the job that sends it.

create table webhooks (
  id text primary key check (id ~ '^c[a-z0-9]{24}$'),
  merchant_id text not null references merchants,
  url text not null check (char_length(url) <= 2048),
  description text,
  events jsonb not null,
  active boolean not null,
  -- Why the service itself switched it off: it answered 410, or has failed for days.
  disabled_reason text check (disabled_reason in ('gone', 'failing')),
  -- Since when nothing but failures came from it.
  failing_since timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  deleted_at timestamptz,
  check (not active or (disabled_reason is null and deleted_at is null))
);
create index webhooks_of_merchant on webhooks (merchant_id, created_at desc, id desc) where deleted_at is null;

-- Signing secrets, encrypted: of a webhook, or without one of the account. A rolled one is good until it expires.
create table webhook_secrets (
  id bigint generated always as identity primary key,
  merchant_id text not null references merchants,
  webhook_id text references webhooks,
  sealed text not null,
  created_at timestamptz not null,
  expires_at timestamptz
);
create unique index webhook_secrets_newest on webhook_secrets (merchant_id, coalesce(webhook_id, '')) where expires_at is null;
create index webhook_secrets_of on webhook_secrets (webhook_id, merchant_id);
create index webhook_secrets_expired on webhook_secrets (expires_at) where expires_at is not null;

create table events (
  id text primary key,
  merchant_id text not null references merchants,
  type text not null,
  -- What happens once has one event, however often it is told.
  dedupe_key text not null,
  -- The body as it is sent, byte for byte, in every attempt.
  body text not null,
  created_at timestamptz not null,
  unique (merchant_id, dedupe_key)
);
create index events_of_merchant on events (merchant_id, created_at desc, id desc);
create index events_old on events (created_at);

create table deliveries (
  id text primary key,
  seq bigint generated always as identity,
  event_id text not null references events on delete cascade,
  merchant_id text not null references merchants,
  -- Where to: an endpoint, or an address of its own.
  webhook_id text references webhooks,
  url text,
  -- What shares a turn and a number of connections.
  lane text not null,
  -- What goes out in order: the payment, the session.
  order_key text not null,
  status text not null check (status in ('pending', 'delivered', 'failed', 'skipped')),
  -- Asked for by the merchant: sent though the endpoint is paused.
  by_hand boolean not null default false,
  -- Of this count; a resend begins anew.
  attempts integer not null default 0,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (event_id, webhook_id),
  check ((webhook_id is null) <> (url is null))
)
-- Each delivery is written three times: room for the second within its page, and cleaned before 200,000 rows are dead.
with (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 70);
create index deliveries_due on deliveries (lane, run_at) where status = 'pending';
create index deliveries_untried on deliveries (lane, order_key, seq) where status = 'pending' and attempts = 0;
create index deliveries_of_webhook on deliveries (webhook_id, created_at desc, id desc);

-- delivery_id has no foreign key: the statement that writes an attempt has just written its delivery, and the check would
-- lock that row once more.
create table delivery_attempts (
  id bigint generated always as identity,
  delivery_id text not null,
  started_at timestamptz not null,
  duration_ms integer not null,
  -- What was answered; null when nothing was.
  status integer,
  -- Why it was no success, in words.
  error text,
  -- The first 4 KB of the answer.
  answer text,
  primary key (delivery_id, id)
);
