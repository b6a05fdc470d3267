-- 16_bundles

create table bundles (
  id text primary key,
  merchant_id text not null,
  chain_id integer not null,
  slug text not null unique check (slug ~ '^[a-z0-9-]{3,64}$'),
  name text not null check (char_length(name) between 1 and 200),
  description text,
  origin_url text not null,
  currency text not null,
  split_id text references splits(id) on delete set null,
  active boolean not null,
  listed boolean not null,
  openapi jsonb,
  openapi_url text,
  version integer not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint bundles_prefix check (starts_with(id, 'bdl_')),
  constraint bundles_resource foreign key (id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
comment on table bundles is
  'An API of a merchant behind prices, route by route. A bundle is a resource, and its newest receiving address is '
  'the one it is paid at.';
comment on column bundles.origin_url is
  'Scheme, host and the start of every path, without a query and without a slash at its end.';
comment on column bundles.listed is 'Whether `/.well-known/x402` lists it.';
comment on column bundles.version is
  'Increased by each change: what a process remembers of a bundle is used while this is the same.';
create index bundles_listed on bundles (updated_at desc) where listed and active;
create index bundles_of_merchant on bundles (merchant_id, created_at desc, id desc);
create index bundles_of_split on bundles (split_id) where split_id is not null;

create table bundle_routes (
  bundle_id text not null references bundles on delete cascade,
  n integer not null,
  method text not null check (method in ('GET', 'POST', 'PUT', 'PATCH', 'DELETE')),
  path text not null,
  shape text not null,
  price base_units not null,
  description text,
  primary key (bundle_id, n),
  unique (bundle_id, method, shape)
);
comment on table bundle_routes is
  'The routes of a bundle. shape: the path with `:` in place of each parameter. Two routes of one shape would match '
  'the same requests.';
comment on column bundle_routes.price is 'Zero: free.';

create table bundle_headers (
  bundle_id text not null references bundles on delete cascade,
  name text not null check (name = lower(name)),
  sealed text not null,
  primary key (bundle_id, name)
);
comment on table bundle_headers is
  'Headers that are added to each request to the origin. The values are secret: encrypted, and never shown again.';

create table bundle_failures (
  payment_id text primary key,
  bundle_id text not null references bundles on delete cascade,
  method text not null,
  path text not null,
  reason text not null,
  attempts integer not null,
  failed_at timestamptz not null,
  served_at timestamptz
);
comment on table bundle_failures is
  'Calls that were paid for and that the origin failed. The payer may repeat each without another payment.';
comment on column bundle_failures.served_at is 'When a repetition was answered.';
create index bundle_failures_of_bundle on bundle_failures (bundle_id, failed_at desc, payment_id desc);

create trigger bundles_add_slug after insert on bundles for each row execute function keep_slug();
create trigger bundles_keep_slug after update of slug on bundles for each row
  when (new.slug is distinct from old.slug) execute function keep_slug();
create trigger bundles_register before insert on bundles for each row execute function register_resource();
create trigger bundles_unregister after delete on bundles for each row execute function unregister_resource();
