-- Tokens at receiving addresses that nobody sells for: how far they were looked for, and what was found. Nothing here counts
-- as a payment, and no other table refers to it: anyone can emit such transfers.

create table token_scans (
  chain_id integer primary key,
  -- The finalized blocks that are read now, both included, and up to which deposit they are read; to_block is below
  -- from_block between two readings.
  from_block bigint not null,
  to_block bigint not null,
  from_time timestamptz not null,
  after_id bigint not null default 0,
  blocks bigint not null check (blocks > 0),
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz
);

create table foreign_tokens (
  id bigint generated always as identity primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  deposit_id bigint not null references deposits,
  token evm_address not null,
  tx_hash evm_hash not null,
  block_number bigint not null,
  from_address evm_address not null,
  value base_units not null,
  found_at timestamptz not null,
  balance base_units,
  check_at timestamptz not null,
  unique (deposit_id, token)
);
create index foreign_tokens_listed on foreign_tokens (merchant_id, id desc) where balance > 0;
create index foreign_tokens_due on foreign_tokens (chain_id, check_at);
create index foreign_tokens_found on foreign_tokens (chain_id, found_at);

-- The addresses that were in the scan at some time since a block, by id.
create index deposits_scanned on deposits (chain_id, id) where watched;
create index deposits_dormant_since on deposits (chain_id, dormant_since) where not watched;
