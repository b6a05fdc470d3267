-- 14_settlements

create table settlements (
  id text primary key check (starts_with(id, 'set_')),
  merchant_id text not null references merchants,
  chain_id integer not null,
  token evm_address not null,
  payer evm_address not null,
  nonce evm_hash not null,
  digest evm_hash not null,
  pay_to evm_address not null,
  amount base_units not null check (amount > 0),
  valid_before bigint not null,
  resource_id text references resources,
  binding text not null,
  payload_hash text not null,
  identifier text,
  payout_id uuid not null references payouts,
  from_block bigint not null,
  found_hash evm_hash,
  claim_id uuid,
  lease_until timestamptz,
  served_at timestamptz,
  retry_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  answered_at timestamptz,
  failed_at timestamptz,
  caller text not null default '',
  found_block bigint,
  found_final boolean not null default false,
  unique (chain_id, token, payer, nonce)
);
comment on table settlements is 'A signed authorization (x402), bound to the request that it pays for.';
comment on column settlements.valid_before is 'Unix time in seconds.';
comment on column settlements.resource_id is 'Null if another server sells it.';
comment on column settlements.binding is
  'SHA-256 of the request that the payment is for, and of the payload that came with it.';
comment on column settlements.identifier is 'The caller''s own id of the payment (extension payment-identifier).';
comment on column settlements.payout_id is 'The relay in progress, or the last one.';
comment on column settlements.from_block is
  'The chain''s height when it was claimed: the search for another sender''s transaction starts here.';
comment on column settlements.found_hash is 'Another sender''s transaction that used the authorization.';
comment on column settlements.claim_id is 'Which request may serve what was bought, until its lease expires.';
comment on column settlements.retry_until is
  'Set when the merchant''s server failed: until then its retry token repeats the call.';
comment on column settlements.answered_at is
  'When its caller got what was bought, or a token for it: the payment alone buys nothing more.';
comment on column settlements.failed_at is 'When it became certain that it can''t be paid.';
comment on column settlements.caller is 'A MAC of the address that the first request came from.';
comment on column settlements.found_final is
  'Whether the block of the transaction that was found is final; before, a reorg may remove it.';
-- What somebody else carried out is looked up by its transaction, for each transfer that is settled.
create index settlements_of_found on settlements (found_hash) where found_hash is not null;
create unique index settlements_of_identifier on settlements
  (coalesce(resource_id, merchant_id), (case when resource_id is null then '' else payer::text end), identifier)
  where identifier is not null;
create index settlements_of_merchant on settlements (merchant_id, created_at desc, id desc);
create index settlements_of_payout on settlements (payout_id);
create index settlements_of_resource on settlements (resource_id) where resource_id is not null;
