-- Products, payment links and checkout sessions.

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
  updated_at timestamptz not null,
  split_id text references splits(id) on delete set null,
  billing_interval text check (billing_interval in ('day', 'week', 'month', 'year')),
  billing_count integer check (billing_count between 1 and 12),
  trial_days integer not null default 0 check (trial_days between 0 and 365),
  max_periods integer check (max_periods between 1 and 1000),
  constraint products_billing check ((billing_interval is null) = (billing_count is null) and (billing_interval is not null or trial_days = 0 and max_periods is null))
);
comment on table products is 'What checkouts, payment links and subscriptions sell.';
comment on column products.billing_interval is
  'The length of a period, with `billing_count`; null for a product that is no subscription.';
comment on column products.max_periods is 'How many periods are billed; null: until it is cancelled.';
create index products_of_merchant on products (merchant_id, created_at desc, id desc);
create index products_of_split on products (split_id) where split_id is not null;

create table payment_links (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  slug text not null unique check (slug ~ '^[a-z0-9-]{3,64}$'),
  title text not null check (char_length(title) between 1 and 200),
  description text,
  amount base_units check (amount > 0),
  currency text not null,
  product_id text references products,
  redirect_url text,
  max_uses integer check (max_uses > 0),
  uses integer not null default 0,
  expires_at timestamptz,
  active boolean not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  split_id text references splits(id) on delete set null,
  constraint payment_links_check check (max_uses is null or uses <= max_uses)
);
comment on table payment_links is 'Pages where anyone can pay: each visit makes a checkout session.';
comment on column payment_links.amount is 'Null: the payer decides how much.';
comment on column payment_links.max_uses is 'How many sessions may be confirmed; `uses` is how many were.';
create index payment_links_of_merchant on payment_links (merchant_id, created_at desc, id desc);
create index payment_links_of_split on payment_links (split_id) where split_id is not null;

create table checkout_sessions (
  id text primary key,
  merchant_id text not null,
  chain_id integer not null,
  amount base_units not null check (amount > 0),
  currency text not null,
  description text,
  redirect_url text,
  callback_url text,
  link_id text references payment_links,
  product_id text references products,
  customer_email text,
  payer_fields jsonb,
  payer_info jsonb,
  metadata jsonb,
  status text not null check (status in ('pending', 'verifying', 'authorized', 'confirmed', 'voided', 'partially_refunded', 'refunded', 'failed', 'expired')),
  exception text check (exception in ('underpaid', 'overpaid', 'late', 'duplicate', 'wrong_asset')),
  received base_units not null default 0,
  message text,
  payer evm_address,
  tx_hash evm_hash,
  confirmed_at timestamptz,
  expires_at timestamptz not null,
  run_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  recipient_set_id bigint references recipient_sets,
  notified_paid boolean not null default false,
  event_sequence integer not null default 0,
  split_id text,
  agent boolean not null default false,
  agent_caller text,
  capture text not null default 'direct' check (capture in ('direct', 'manual', 'automatic')),
  traceparent text,
  constraint checkout_sessions_direct check (capture <> 'direct' or status in ('pending', 'verifying', 'confirmed', 'failed', 'expired')),
  constraint checkout_sessions_escrow check (capture = 'direct' or run_at is null),
  constraint checkout_sessions_paid check (status not in ('confirmed', 'partially_refunded', 'refunded') or confirmed_at is not null and tx_hash is not null),
  constraint checkout_sessions_prefix check (starts_with(id, 'cs_')),
  constraint checkout_sessions_resource foreign key (id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
comment on table checkout_sessions is
  'A checkout: one amount, paid once, at an address of its own or through an escrow.';
comment on column checkout_sessions.payer_fields is
  'The fields that the payer is asked for; `payer_info` is what was entered.';
comment on column checkout_sessions.received is 'What has arrived and is confirmed, in the settlement token.';
comment on column checkout_sessions.message is 'For the payer; null: the message of the status.';
comment on column checkout_sessions.run_at is 'When its expiry is checked next; null: it has ended.';
comment on column checkout_sessions.recipient_set_id is
  'Copied when the session is made: later changes of the split do not touch it.';
comment on column checkout_sessions.notified_paid is
  'Whether the newest event about it says that it was paid: then a reversal is an event too.';
comment on column checkout_sessions.event_sequence is 'Numbers its events, which may arrive in another order.';
comment on column checkout_sessions.split_id is
  'The split that it was made with, for its response; the recipients were copied.';
comment on column checkout_sessions.agent is
  'The session was opened for an agent at a payment link: no merchant is notified of it.';
comment on column checkout_sessions.agent_caller is 'A MAC of the address of the caller that it was opened for.';
comment on column checkout_sessions.capture is
  'A session that is not `direct` has a row in `escrows` and no address.';
comment on column checkout_sessions.traceparent is
  'The span that made the row (W3C Trace Context); null if nothing is traced.';
create index checkout_sessions_due on checkout_sessions (run_at) where run_at is not null;
create index checkout_sessions_of_agent on checkout_sessions (link_id, agent_caller, created_at) where agent;
create index checkout_sessions_of_exception on checkout_sessions (merchant_id, exception, created_at desc, id desc)
  where exception is not null;
create index checkout_sessions_of_link on checkout_sessions (link_id) where link_id is not null and status <> 'confirmed';
create index checkout_sessions_of_merchant on checkout_sessions (merchant_id, created_at desc, id desc);
create index checkout_sessions_of_status on checkout_sessions (merchant_id, status, created_at desc, id desc);

create table put_away_terms (
  id bigint generated always as identity primary key,
  merchant_id text not null references merchants,
  link_id text references payment_links,
  product_id text references products,
  recipient_set_id bigint references recipient_sets,
  session jsonb not null,
  deposit jsonb not null,
  hash bytea not null,
  unique (merchant_id, hash)
);
comment on table put_away_terms is
  'What many checkouts that were put away have in common: the other columns of their rows, as the database has them.';
comment on column put_away_terms.link_id is
  'A column of its own, like product_id and recipient_set_id, so that what the rows refer to is not deleted '
  'meanwhile.';
comment on column put_away_terms.session is
  'All columns that `put_away` does not have; `deposit` has those of the address.';
comment on column put_away_terms.hash is 'SHA-256 of `session` and `deposit`.';

create table put_away (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  terms_id bigint not null references put_away_terms,
  address bytea not null,
  salt bytea not null,
  open_after_s bigint not null,
  watched_number bigint not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  updated_at timestamptz not null,
  check_at timestamptz not null,
  submissions jsonb
);
comment on table put_away is
  'An unpaid checkout of long ago: some hundred bytes in place of thousands. `deposits/put-away.ts` brings it back '
  'when anyone asks for it or money is found at its address.';
comment on column put_away.id is 'The id of the checkout session.';
comment on column put_away.address is 'The receiving address, as bytes; `salt` too.';
comment on column put_away.watched_number is 'The block up to which it is known that nothing came.';
comment on column put_away.check_at is 'When its balance is read next.';
comment on column put_away.submissions is 'Hashes that were submitted to it and refused.';
create unique index put_away_address on put_away (address, chain_id);
create index put_away_due on put_away (chain_id, check_at);
create index put_away_of_merchant on put_away (merchant_id, id);

create function keep_slug() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' then
    delete from slugs where resource_id = old.id;
    -- The other of two that had it before the table above was made.
    insert into slugs
      select slug, id from (select slug, id from paywalls union all select slug, id from payment_links) named
        where slug = old.slug and id <> old.id
      on conflict do nothing;
    if old.slug is not null then
      insert into held_slugs values (old.slug, old.merchant_id, new.updated_at + interval '90 days')
        on conflict (slug) do update set merchant_id = excluded.merchant_id, until_at = excluded.until_at;
    end if;
  end if;
  if new.slug is not null then
    if exists (select from held_slugs h where h.slug = new.slug and h.merchant_id <> new.merchant_id
        and h.until_at > new.updated_at) then
      raise exception 'the slug % is held for another merchant', new.slug
        using errcode = 'unique_violation', constraint = 'held_slugs_pkey';
    end if;
    insert into slugs values (new.slug, new.id);
  end if;
  return null;
end $$;

-- For each table of things that are for sale. What has deposits or payments can't be deleted: they refer to the resource.
create function register_resource() returns trigger language plpgsql as $$
begin
  insert into resources (id, merchant_id, chain_id) values (new.id, new.merchant_id, new.chain_id);
  return new;
end $$;

create function unregister_resource() returns trigger language plpgsql as $$
begin
  delete from resources where id = old.id;
  return null;
end $$;

-- Until somebody has paid, no session makes a subscription due but a confirmed one.
create function wake_subscription() returns trigger language plpgsql as $$
begin
  update subscriptions set run_at = new.updated_at
    where id = (select subscription_id from invoices where session_id = new.id)
      and (started_at is not null or new.status = 'confirmed');
  return null;
end $$;

create trigger payment_links_add_slug after insert on payment_links for each row execute function keep_slug();
create trigger payment_links_keep_slug after update of slug on payment_links for each row
  when (new.slug is distinct from old.slug) execute function keep_slug();
create trigger checkout_sessions_register before insert on checkout_sessions
  for each row execute function register_resource();
create trigger checkout_sessions_unregister after delete on checkout_sessions
  for each row execute function unregister_resource();
create trigger checkout_sessions_wake_subscription after update on checkout_sessions for each row
  when (new.product_id is not null and new.status is distinct from old.status)
  execute function wake_subscription();
