-- Checkouts: products, payment links, and sessions, each session with a receiving address of its own. A paywall's payment
-- and a checkout's are rows of the same books: deposits, transfers, submissions, payments and claims.

create table products (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  name text not null check (char_length(name) between 1 and 200),
  description text,
  price base_units not null check (price > 0),
  currency text not null,
  active boolean not null,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index products_of_merchant on products (merchant_id, created_at desc, id desc);

create table payment_links (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  slug text not null unique check (slug ~ '^[a-z0-9-]{3,64}$'),
  title text not null check (char_length(title) between 1 and 200),
  description text,
  -- Null: the payer says how much.
  amount base_units check (amount > 0),
  currency text not null,
  product_id text references products,
  redirect_url text,
  -- How many sessions may be confirmed, and how many were.
  max_uses integer check (max_uses > 0),
  uses integer not null default 0,
  expires_at timestamptz,
  active boolean not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  check (max_uses is null or uses <= max_uses)
);
create index payment_links_of_merchant on payment_links (merchant_id, created_at desc, id desc);

create table checkout_sessions (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  amount base_units not null check (amount > 0),
  currency text not null,
  description text,
  redirect_url text,
  callback_url text,
  link_id text references payment_links,
  product_id text references products,
  customer_email text,
  -- The fields to ask the payer for, and what was answered.
  payer_fields jsonb,
  payer_info jsonb,
  metadata jsonb,
  status text not null check (status in ('pending', 'verifying', 'confirmed', 'failed', 'expired')),
  exception text check (exception in ('underpaid', 'overpaid', 'late', 'duplicate', 'wrong_asset')),
  -- What has arrived and is confirmed, in the settlement token.
  received base_units not null default 0,
  -- In words for the payer; null: the words that the status has by itself.
  message text,
  payer evm_address,
  tx_hash evm_hash,
  confirmed_at timestamptz,
  expires_at timestamptz not null,
  -- When the expiry has to look at it; null: it is over, or expired.
  run_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  check ((status = 'confirmed') <= (confirmed_at is not null and tx_hash is not null))
);
create index checkout_sessions_of_merchant on checkout_sessions (merchant_id, created_at desc, id desc);
create index checkout_sessions_of_status on checkout_sessions (merchant_id, status, created_at desc, id desc);
create index checkout_sessions_of_exception on checkout_sessions (merchant_id, exception, created_at desc, id desc)
  where exception is not null;
create index checkout_sessions_due on checkout_sessions (run_at) where run_at is not null;

alter table deposits alter column paywall_id drop not null;
alter table deposits add column session_id text references checkout_sessions;
alter table deposits add constraint deposits_of_one check (num_nonnulls(paywall_id, session_id) = 1);
create unique index deposits_of_session on deposits (session_id) where session_id is not null;
-- A cold address without a date is no longer asked: its time is over.
alter table deposits drop constraint deposits_check;
alter table deposits add constraint deposits_cold_since check (hot or (watched_number is not null and cooled_at is not null));

alter table submissions alter column paywall_id drop not null;
alter table submissions alter column address drop not null;
alter table submissions add column session_id text references checkout_sessions;
alter table submissions add constraint submissions_of_one
  check (num_nonnulls(paywall_id, session_id) = 1 and (paywall_id is null or address is not null));
create unique index submissions_of_session on submissions (session_id, tx_hash) where session_id is not null;
-- What a round looks at, whatever has ended before.
create index submissions_open on submissions (chain_id, tx_hash)
  where status = 'verifying' or (status = 'failed' and reason = 'not_found');

alter table payments alter column paywall_id drop not null;
-- Whose it is, so that a list is one index, however many others there are.
alter table payments add column merchant_id text references merchants;
update payments p set merchant_id = w.merchant_id from paywalls w where w.id = p.paywall_id;
alter table payments alter column merchant_id set not null;
create index payments_of_merchant on payments (merchant_id, created_at desc, id desc);
create index payments_of_merchant_status on payments (merchant_id, status, created_at desc, id desc);
create index payments_of_hash on payments (tx_hash);
create index payments_of_sender on payments (merchant_id, payer);
alter table payments add column session_id text references checkout_sessions;
alter table payments add constraint payments_of_one check (num_nonnulls(paywall_id, session_id) = 1);
-- A session is paid once; what is over, late or too little is a payment of its own that waits for the merchant.
alter table payments drop constraint payments_status_check;
alter table payments add constraint payments_status_check check (status in ('granted', 'reversed', 'open'));
alter table payments add column exception text
  check (exception in ('underpaid', 'overpaid', 'late', 'duplicate', 'wrong_asset'));
alter table payments add constraint payments_open_why check (status <> 'open' or exception is not null);
create unique index payments_of_session on payments (session_id, (status = 'open')) where session_id is not null;
create index payments_exceptional on payments (merchant_id, created_at desc, id desc) where exception is not null;
