-- Merchants, their payout addresses and API keys.

create table merchants (
  id text primary key,
  iss text not null,
  sub text not null,
  name text not null,
  email text,
  created_at timestamptz not null,
  wallet_lock boolean not null default false,
  approver text check (approver in ('wallet', 'service')),
  unique (iss, sub)
);
comment on table merchants is
  'Merchants, each made with the first token of its identity provider''s user (`iss`, `sub`).';
comment on column merchants.wallet_lock is
  'If on, the payout address and the recipients of splits change only with the payout wallet''s signature.';
comment on column merchants.approver is 'Who signs returns; null: the mode''s default.';

create table invitations (
  iss text not null,
  sub text not null,
  created_at timestamptz not null,
  primary key (iss, sub)
);
comment on table invitations is 'Users who may become merchants where not everyone may.';

create table branding (
  merchant_id text primary key references merchants,
  accent_color text check (accent_color ~ '^#[0-9a-f]{6}$'),
  allowed_origins jsonb not null default '[]'::jsonb check (jsonb_typeof(allowed_origins) = 'array'),
  logo bytea check (octet_length(logo) between 1 and 65536),
  logo_type text check (logo_type in ('image/png', 'image/jpeg', 'image/webp')),
  logo_hash text,
  constraint branding_check check ((logo is null) = (logo_type is null) and (logo is null) = (logo_hash is null))
);
comment on table branding is
  'How the pages of a merchant look, and the sites that may show them in a frame. Apart from `merchants`, whose rows '
  'everything locks and reads: a logo has up to 64 KB.';
comment on column branding.accent_color is 'As `#rrggbb`, in lower case.';
comment on column branding.allowed_origins is 'Origins in their normal form.';
comment on column branding.logo_hash is
  'SHA-256 in base64url: the name under which it is served, which changes with it.';
create index branding_by_logo on branding (logo_hash) where logo_hash is not null;

create table payout_addresses (
  merchant_id text not null references merchants,
  chain_id integer not null,
  address evm_address not null,
  pending_address evm_address,
  pending_at timestamptz,
  since timestamptz not null default now(),
  primary key (merchant_id, chain_id),
  constraint payout_addresses_check check ((pending_address is null) = (pending_at is null))
);
comment on table payout_addresses is
  'Where a merchant''s money goes, by network. In live mode a change waits in the pending columns.';
comment on column payout_addresses.since is
  'Since when it is in force: the one that has been longest signs for the wallet lock.';
create index payout_addresses_pending on payout_addresses (pending_at) where pending_at is not null;

create table wallet_proofs (
  merchant_id text not null references merchants,
  chain_id integer not null,
  address evm_address not null,
  by_key boolean not null,
  proven_at timestamptz not null,
  primary key (merchant_id, chain_id, address)
);
comment on table wallet_proofs is
  'A payout wallet that signed when its merchant switched the wallet lock on. Refunds from a wallet are of the '
  'merchant that proved it last.';
comment on column wallet_proofs.by_key is
  'Whether its key signed, which is the same on every network; otherwise its contract did, on this network.';
create index wallet_proofs_of_address on wallet_proofs (address, proven_at desc);

create table api_keys (
  id text primary key,
  merchant_id text not null references merchants,
  name text not null check (char_length(name) between 1 and 200),
  hash text not null unique check (hash ~ '^[0-9a-f]{64}$'),
  prefix text not null,
  last4 text not null,
  created_at timestamptz not null,
  last_used_at timestamptz,
  scopes text[] not null default '{checkouts}'::text[] check (scopes <@ array['checkouts', 'read', 'console'] and cardinality(scopes) between 1 and 3)
);
comment on table api_keys is
  'Only the SHA-256 of a key is kept: it has 40 random base62 characters. A revoked key has no row.';
comment on column api_keys.scopes is 'What the key may do.';
create index api_keys_of_merchant on api_keys (merchant_id, created_at desc, id desc);

create table idempotency_keys (
  merchant_id text not null references merchants,
  route text not null,
  key text not null check (char_length(key) between 1 and 255),
  request_hash text not null check (request_hash ~ '^[0-9a-f]{64}$'),
  claim_id uuid,
  lease_until timestamptz,
  status integer check (status between 200 and 299),
  answer text,
  expires_at timestamptz not null,
  primary key (merchant_id, route, key),
  constraint idempotency_keys_check check ((claim_id is null) = (lease_until is null)),
  constraint idempotency_keys_check1 check ((status is null) = (answer is null)),
  constraint idempotency_keys_check2 check ((status is null) = (claim_id is not null))
);
comment on table idempotency_keys is
  'Requests with an Idempotency-Key: reserved while the first one runs, then its response. A request that failed has '
  'no row.';
comment on column idempotency_keys.route is 'Method and path as declared, such as `POST /api/console/paywalls`.';
comment on column idempotency_keys.claim_id is
  'Whose reservation it is, and until when; both are null once there is a response.';
create index idempotency_keys_expired on idempotency_keys (expires_at);
