-- Paywalls, and who has access.

create table paywalls (
  id text primary key,
  merchant_id text not null,
  chain_id integer not null,
  name text not null check (char_length(name) between 1 and 200),
  price base_units not null check (price > 0),
  currency text not null,
  description text,
  content_type text not null,
  content_data jsonb,
  content_url text,
  pricing_model text not null,
  access_duration_s bigint check (access_duration_s > 0),
  slug text unique check (slug ~ '^[a-z0-9-]{3,64}$'),
  active boolean not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  split_id text references splits(id) on delete set null,
  listed boolean not null default false,
  subscription_product_id text references products,
  constraint paywalls_prefix check (starts_with(id, 'pw_')),
  constraint paywalls_resource foreign key (id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
comment on table paywalls is
  'What a merchant sells to many, each of whom gets access for a time or for a number of calls.';
comment on column paywalls.listed is 'Whether `/.well-known/x402` lists it.';
comment on column paywalls.subscription_product_id is 'Subscribers of this product have access.';
-- What is listed for agents is public.
create index paywalls_listed on paywalls (updated_at desc) where listed and active and slug is not null;
create index paywalls_of_merchant on paywalls (merchant_id, created_at desc, id desc);
create index paywalls_of_split on paywalls (split_id) where split_id is not null;

create table access (
  paywall_id text not null references paywalls,
  address evm_address not null,
  expires_at timestamptz,
  tx_hash evm_hash,
  since_at timestamptz,
  calls_left integer check (calls_left >= 0),
  folded_at timestamptz,
  free_until timestamptz,
  calls_kept integer check (calls_kept >= 0),
  primary key (paywall_id, address),
  constraint access_check check (folded_at is null or since_at is not null and calls_kept is not null)
);
comment on table access is
  'The valid grants of an address, folded. The row is also the lock under which they change.';
comment on column access.since_at is 'Since when access has lasted without a gap.';
comment on column access.calls_left is 'What is left of the calls of the grants; null: any number.';
comment on column access.folded_at is
  'When the newest folded grant was granted; null: all must be folded again. The database resets it.';
comment on column access.free_until is
  'Until when calls are not counted; `calls_kept` is how many are left from then on.';

-- API processes keep what an address has access to (`paywalls/known-access.ts`), and are notified of each change in the order of the
-- commits. A call that is used changes nothing that is kept, unless it was the last.
create function notify_access() returns trigger language plpgsql as $$
begin
  perform pg_notify('sluice', 'access ' || old.paywall_id || ' ' || old.address);
  return null;
end $$;

-- A product that opens a paywall can prolong access too.
create function notify_paywall_access() returns trigger language plpgsql as $$
begin
  perform pg_notify('sluice', 'access ' || old.id);
  return null;
end $$;

create trigger paywalls_add_slug after insert on paywalls for each row when (new.slug is not null) execute function keep_slug();
create trigger paywalls_keep_slug after update of slug on paywalls for each row
  when (new.slug is distinct from old.slug) execute function keep_slug();
-- API processes keep what an address has access to (`paywalls/known-access.ts`), and are notified of each change in the order of the
-- commits. A call that is used changes nothing that is kept, unless it was the last.
create trigger notify_access after update on access for each row
  when (old.expires_at is distinct from new.expires_at or old.tx_hash is distinct from new.tx_hash
    or (old.calls_left > 0) is distinct from (new.calls_left > 0))
  execute function notify_access();
create trigger notify_no_access after delete on access for each row execute function notify_access();
-- API processes keep what an address has access to (`paywalls/known-access.ts`), and are notified of each change in the order of the
-- commits. A call that is used changes nothing that is kept, unless it was the last.
create trigger notify_access after update on paywalls for each row
  when (old.subscription_product_id is distinct from new.subscription_product_id)
  execute function notify_paywall_access();
create trigger notify_no_access after delete on paywalls for each row execute function notify_paywall_access();
create trigger paywalls_register before insert on paywalls for each row execute function register_resource();
create trigger paywalls_unregister after delete on paywalls for each row execute function unregister_resource();
