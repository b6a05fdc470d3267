-- Domains, and what the service knows about itself.

create domain base_units as numeric(78,0) check (value >= 0);
comment on domain base_units is 'An amount in the smallest unit of its token, never below zero.';
create domain evm_address as text check (value ~ '^0x[0-9a-f]{40}$');
comment on domain evm_address is 'An address in lower case.';
create domain evm_hash as text check (value ~ '^0x[0-9a-f]{64}$');
comment on domain evm_hash is 'A 32-byte hash in lower case.';

create table installation (
  key text primary key,
  value text not null
);
comment on table installation is
  'Facts about this database: the mode it was made for, the genesis block of each network, the time of the last '
  'backup.';

create table signing_keys (
  id text primary key,
  public_key jsonb not null,
  sealed text not null,
  created_at timestamptz not null
);
comment on table signing_keys is
  'Keys that sign access tokens. The newest that was published an hour ago signs; the others are published until '
  'their tokens have expired.';
comment on column signing_keys.id is 'The thumbprint of the public key (RFC 7638).';
comment on column signing_keys.sealed is 'The private key, sealed under SECRET_KEY.';

create table nonces (
  nonce text primary key,
  purpose text not null,
  resource text not null,
  expires_at timestamptz not null
);
comment on table nonces is
  'Nonces of wallet signatures that were not used yet. The resource is what the purpose is for, such as the id of a '
  'paywall.';
create index nonces_expired on nonces (expires_at);
