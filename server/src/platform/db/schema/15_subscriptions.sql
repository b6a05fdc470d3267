-- 15_subscriptions

create table subscriptions (
  id text primary key check (starts_with(id, 'sub_')),
  merchant_id text not null references merchants,
  chain_id integer not null,
  product_id text not null references products,
  billing_interval text not null check (billing_interval in ('day', 'week', 'month', 'year')),
  billing_count integer not null check (billing_count between 1 and 12),
  trial_days integer not null,
  max_periods integer,
  payer evm_address,
  customer_email text,
  started_at timestamptz,
  anchor timestamptz,
  paused_at timestamptz,
  canceled_at timestamptz,
  cancel_at_period_end boolean not null default false,
  status text check (status in ('active', 'payment_due', 'past_due', 'paused', 'canceled')),
  cancel_reason text check (cancel_reason in ('requested', 'unpaid', 'completed')),
  ended_at timestamptz,
  paid_until timestamptz,
  access_until timestamptz,
  event_sequence integer not null default 0,
  run_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  cancel_asked_by text check (cancel_asked_by in ('merchant', 'subscriber', 'both')),
  blocked_by text check (blocked_by in ('payments_paused', 'payout_address', 'price')),
  failed_rounds integer not null default 0,
  is_first boolean not null default true,
  has_trial boolean not null default true,
  constraint subscriptions_check check (num_nulls(payer, started_at, anchor) = any (array[0, 3])),
  constraint subscriptions_check1 check (status is null or started_at is not null),
  constraint subscriptions_check2 check ((status = 'canceled') = (cancel_reason is not null) and (cancel_reason is null) = (ended_at is null)),
  constraint subscriptions_check3 check ((status is null) = (paid_until is null) and (status is null) = (access_until is null)),
  constraint subscriptions_end_asked check (not cancel_at_period_end or cancel_asked_by is not null)
);
comment on table subscriptions is
  'A product that one payer is billed for repeatedly. It has no status, and is not shown, until its first invoice is '
  'paid.';
comment on column subscriptions.product_id is 'The product of the next invoice.';
comment on column subscriptions.trial_days is 'What its checkout promised; given if `has_trial`.';
comment on column subscriptions.payer is
  'The wallet that paid first. It has the access, whichever wallet pays later.';
comment on column subscriptions.anchor is 'The time from which periods are counted.';
comment on column subscriptions.canceled_at is
  'When cancelling was asked for; with `cancel_at_period_end` it takes effect when the paid time ends.';
comment on column subscriptions.status is 'The result of the last computation.';
comment on column subscriptions.ended_at is 'When it was first known to be canceled; null before.';
comment on column subscriptions.run_at is
  'When it is computed next; null while nothing can change without a payment or a request.';
comment on column subscriptions.cancel_asked_by is 'Who asked for either: each can only withdraw its own request.';
comment on column subscriptions.blocked_by is 'Why the due invoice can''t be made.';
comment on column subscriptions.failed_rounds is 'Failed rounds since the last that advanced it.';
comment on column subscriptions.is_first is
  'Whether it is its payer''s first of the product of its last invoice: only that one has days of grace.';
comment on column subscriptions.has_trial is
  'Whether it was its payer''s first of the product that it started with: only that one has a trial.';
create index subscriptions_due on subscriptions (run_at, id) where run_at is not null;
create index subscriptions_failing on subscriptions (chain_id) where failed_rounds >= 3;
create index subscriptions_of_merchant on subscriptions (merchant_id, started_at desc, id desc) where started_at is not null;
create index subscriptions_of_payer on subscriptions (payer, started_at desc, id desc) where payer is not null;

create table first_subscriptions (
  payer evm_address not null,
  product_id text not null references products,
  subscription_id text not null references subscriptions,
  primary key (payer, product_id)
);
comment on table first_subscriptions is
  'Which subscription of a payer to a product is the first: trials and days of grace are given once. The key decides '
  'between subscriptions that start at the same time.';
create index first_subscriptions_of on first_subscriptions (subscription_id);

create table invoices (
  id text primary key check (starts_with(id, 'inv_')),
  subscription_id text not null references subscriptions,
  merchant_id text not null references merchants,
  sequence integer not null check (sequence > 0),
  session_id text not null unique references checkout_sessions,
  product_id text not null references products,
  amount base_units not null check (amount > 0),
  currency text not null,
  period_start timestamptz,
  period_end timestamptz,
  due_at timestamptz not null,
  paid_at timestamptz,
  void_asked_at timestamptz,
  voided_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  void_asked_by text check (void_asked_by in ('merchant', 'subscriber')),
  unique (subscription_id, sequence),
  constraint invoices_check check ((num_nulls(period_start, period_end) = any (array[0, 2])) and period_start < period_end),
  constraint invoices_check1 check (sequence = 1 or period_start is not null),
  constraint invoices_check2 check (paid_at is null or period_start is not null and voided_at is null),
  constraint invoices_check3 check (voided_at is null or void_asked_at is not null)
);
comment on table invoices is 'The price of one period, and the session that it is paid with.';
comment on column invoices.period_start is 'Null for the first invoice until it is paid.';
comment on column invoices.paid_at is 'The same as its session''s; null again when a reorg removes the payment.';
comment on column invoices.void_asked_at is 'Since when the invoice should not be paid any more.';
comment on column invoices.void_asked_by is 'Whose request `void_asked_at` was: a pause is its merchant''s.';
create index invoices_of_merchant on invoices (merchant_id, created_at desc, id desc);
-- At most one is open.
create unique index invoices_open on invoices (subscription_id) where paid_at is null and voided_at is null;
