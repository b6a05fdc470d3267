-- Subscriptions: a product that is billed again and again. Each period has one invoice and each invoice one checkout session; how
-- a subscription stands is the fold of its invoices' sessions and of what was asked for (`subscriptions/fold-subscription.ts`).
--
-- Locks: `products`, `paywalls` and `checkout_sessions` against reads and writes until all migrations of this start are committed.

alter table products
  add column billing_interval text check (billing_interval in ('day', 'week', 'month', 'year')),
  add column billing_count integer check (billing_count between 1 and 12),
  add column trial_days integer not null default 0 check (trial_days between 0 and 365),
  add column max_periods integer check (max_periods between 1 and 1000),
  add constraint products_billing check ((billing_interval is null) = (billing_count is null)
    and (billing_interval is not null or (trial_days = 0 and max_periods is null)));

-- A paywall that is open to whoever subscribes to this product.
alter table paywalls add column subscription_product_id text references products;

-- Made with the session that its first payment is asked for with, and invisible until that is paid.
create table subscriptions (
  id text primary key check (starts_with(id, 'sub_')),
  merchant_id text not null references merchants,
  chain_id integer not null,
  -- What the next invoice is for. What it costs then is the product's price of that time.
  product_id text not null references products,
  billing_interval text not null check (billing_interval in ('day', 'week', 'month', 'year')),
  billing_count integer not null check (billing_count between 1 and 12),
  trial_days integer not null,
  max_periods integer,
  -- Who paid first: whoever pays later, access is this wallet's.
  payer evm_address,
  customer_email text,
  started_at timestamptz,
  -- What periods are counted from.
  anchor timestamptz,
  paused_at timestamptz,
  -- Asked for: at once, or with the time that is paid.
  canceled_at timestamptz,
  cancel_at_period_end boolean not null default false,
  -- What the fold said last. Without a status it has not begun.
  status text check (status in ('active', 'payment_due', 'past_due', 'paused', 'canceled')),
  cancel_reason text check (cancel_reason in ('requested', 'unpaid', 'completed')),
  -- When it was first known to be canceled; null while it is not.
  ended_at timestamptz,
  paid_until timestamptz,
  access_until timestamptz,
  event_sequence integer not null default 0,
  -- When it is folded next; null while nothing can change by itself.
  run_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  check (num_nulls(payer, started_at, anchor) in (0, 3)),
  check (status is null or started_at is not null),
  check ((status = 'canceled') = (cancel_reason is not null) and (cancel_reason is null) = (ended_at is null)),
  check ((status is null) = (paid_until is null) and (status is null) = (access_until is null))
);
create index subscriptions_due on subscriptions (run_at, id) where run_at is not null;
create index subscriptions_of_merchant on subscriptions (merchant_id, started_at desc, id desc) where started_at is not null;
create index subscriptions_of_payer on subscriptions (payer, started_at desc, id desc) where payer is not null;

create table invoices (
  id text primary key check (starts_with(id, 'inv_')),
  subscription_id text not null references subscriptions,
  merchant_id text not null references merchants,
  sequence integer not null check (sequence > 0),
  session_id text not null unique references checkout_sessions,
  product_id text not null references products,
  amount base_units not null check (amount > 0),
  currency text not null,
  -- Of the first, null until it is paid: that is when its period begins.
  period_start timestamptz,
  period_end timestamptz,
  due_at timestamptz not null,
  -- Whether it is paid, as its session says; a reorg takes it back.
  paid_at timestamptz,
  -- Since when nobody is to pay it any more, and when its session ended without a payment after that.
  void_asked_at timestamptz,
  voided_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (subscription_id, sequence),
  check (num_nulls(period_start, period_end) in (0, 2) and period_start < period_end),
  check (sequence = 1 or period_start is not null),
  check (paid_at is null or (period_start is not null and voided_at is null)),
  check (voided_at is null or void_asked_at is not null)
);
create index invoices_of_merchant on invoices (merchant_id, created_at desc, id desc);
-- At most one is open.
create unique index invoices_open on invoices (subscription_id) where paid_at is null and voided_at is null;

-- Whatever becomes of a session, the subscription that it pays for is folded again.
create function wake_subscription() returns trigger language plpgsql as $$
begin
  update subscriptions set run_at = new.updated_at
    where id = (select subscription_id from invoices where session_id = new.id);
  return null;
end $$;
create trigger checkout_sessions_wake_subscription after update on checkout_sessions for each row
  when (new.product_id is not null and new.status is distinct from old.status)
  execute function wake_subscription();
