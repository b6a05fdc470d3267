-- Who calls: merchants' API keys, the keys under which the service signs tokens, nonces of wallet signatures; and the
-- calls that a grant pays for.

-- Only the SHA-256 is kept: 40 random base62 characters can't be found again from it. A revoked key has no row.
create table api_keys (
  id text primary key,
  merchant_id text not null references merchants,
  name text not null check (char_length(name) between 1 and 200),
  hash text not null unique check (hash ~ '^[0-9a-f]{64}$'),
  prefix text not null,
  last4 text not null,
  created_at timestamptz not null,
  last_used_at timestamptz
);
create index api_keys_of_merchant on api_keys (merchant_id, created_at desc, id desc);

-- The newest that was published for an hour signs; the others are published until all their tokens have expired.
create table signing_keys (
  -- The thumbprint of the public key (RFC 7638).
  id text primary key,
  public_key jsonb not null,
  -- The private key, sealed under SECRET_KEY.
  sealed text not null,
  created_at timestamptz not null
);

-- Nonces that wait for their one signature. The resource is what the purpose is for, such as a paywall's id.
create table nonces (
  nonce text primary key,
  purpose text not null,
  resource text not null,
  expires_at timestamptz not null
);
create index nonces_expired on nonces (expires_at);

-- Null: as many calls as fit into its time.
alter table grants
  add column calls integer check (calls > 0),
  add column calls_used integer not null default 0,
  add check (calls_used between 0 and coalesce(calls, 0));

create index grants_unused on grants (paywall_id, address, granted_at, id) where revoked_at is null and calls_used < calls;

-- Folded like expires_at: since when access has held without a gap, and what is left of the calls of the grants since
-- then; null: as many as fit.
alter table access
  add column since_at timestamptz,
  add column calls_left integer check (calls_left >= 0);

update grants g set calls = 1 from paywalls p where p.id = g.paywall_id and p.pricing_model = 'per_call';
-- No call was taken before this, so that whoever has access has one at least. Without since_at it is folded before the
-- first one is taken.
update access a set calls_left = 1
  where a.expires_at is not null
    and exists (select from paywalls p where p.id = a.paywall_id and p.pricing_model = 'per_call');
