-- Merchants, paywalls, their receiving addresses, and what the chain says of them.
-- Money is numeric(78,0) base units; addresses and hashes are lower-case text.

create domain evm_address as text check (value ~ '^0x[0-9a-f]{40}$');
create domain evm_hash as text check (value ~ '^0x[0-9a-f]{64}$');
create domain base_units as numeric(78,0) check (value >= 0);

-- Facts about this database itself: the mode it was made in, the genesis block of each network.
create table installation (
  key text primary key,
  value text not null
);

create table merchants (
  id text primary key,
  iss text not null,
  sub text not null,
  name text not null,
  email text,
  created_at timestamptz not null,
  unique (iss, sub)
);

create table invitations (
  iss text not null,
  sub text not null,
  created_at timestamptz not null,
  primary key (iss, sub)
);

-- Where a merchant's money goes, by network. In live mode a change waits in the pending columns.
create table payout_addresses (
  merchant_id text not null references merchants,
  chain_id integer not null,
  address evm_address not null,
  pending_address evm_address,
  pending_at timestamptz,
  primary key (merchant_id, chain_id),
  check ((pending_address is null) = (pending_at is null))
);
create index payout_addresses_pending on payout_addresses (pending_at) where pending_at is not null;

create table paywalls (
  id text primary key,
  merchant_id text not null references merchants,
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
  updated_at timestamptz not null
);
create index paywalls_of_merchant on paywalls (merchant_id, created_at desc, id desc);

-- A receiving address. salt, owner and open_after_s are all that the factory needs to release or recover it.
create table deposits (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  address evm_address not null,
  factory evm_address not null,
  salt evm_hash not null,
  owner evm_address not null,
  open_after_s bigint not null,
  paywall_id text not null references paywalls,
  created_at timestamptz not null,
  -- Hot ones are in every scan of the logs, cold ones are asked for their balance now and then.
  hot boolean not null default true,
  -- Until when it stays hot though nothing is for sale there.
  hot_until timestamptz not null,
  -- The block up to which its transfers are known, where the ordinary scan does not see to it.
  watched_number bigint,
  cooled_at timestamptz,
  check_at timestamptz,
  unique (chain_id, address),
  check (hot or (watched_number is not null and cooled_at is not null and check_at is not null))
);
create index deposits_of_paywall on deposits (paywall_id);
create index deposits_hot on deposits (chain_id, hot_until) where hot;
create index deposits_cold on deposits (chain_id, check_at) where not hot;

-- Price, switch and receiving address of a paywall, dated: a transfer is judged by what was in force when it was mined.
create table paywall_versions (
  paywall_id text not null references paywalls,
  n integer not null,
  price base_units not null,
  active boolean not null,
  deposit_id bigint not null references deposits,
  from_at timestamptz not null,
  until_at timestamptz,
  primary key (paywall_id, n),
  check (until_at >= from_at)
);
create unique index paywall_versions_open on paywall_versions (paywall_id) where until_at is null;
create index paywall_versions_of_deposit on paywall_versions (deposit_id);

-- Every Transfer log to a deposit that was ever seen. k counts the transfers of one token to one address within a
-- transaction: log_index changes when the transaction is mined again, k does not.
create table transfers (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  tx_hash evm_hash not null,
  token evm_address not null,
  to_address evm_address not null,
  k integer not null,
  deposit_id bigint not null references deposits,
  from_address evm_address not null,
  value base_units not null check (value > 0),
  block_number bigint not null,
  block_hash evm_hash not null,
  log_index integer not null,
  block_time timestamptz not null,
  state text not null check (state in ('seen', 'confirmed', 'final', 'gone')),
  -- When another block was first seen at this height; one look is not yet evidence.
  suspect_at timestamptz,
  -- When settling has to look at it; null: nothing to do.
  run_at timestamptz,
  created_at timestamptz not null,
  unique (chain_id, tx_hash, token, to_address, k)
);
create index transfers_due on transfers (chain_id, run_at) where run_at is not null;
create index transfers_unfinal on transfers (chain_id, block_number) where state in ('seen', 'confirmed');
create index transfers_of_payer on transfers (deposit_id, from_address);

-- What buyers say they paid. A hint that finds a transfer sooner, never evidence.
create table submissions (
  id bigint generated always as identity primary key,
  paywall_id text not null references paywalls,
  chain_id integer not null,
  tx_hash evm_hash not null,
  address evm_address not null,
  status text not null check (status in ('verifying', 'granted', 'failed', 'reversed')),
  reason text check (reason in ('reverted', 'no_transfer', 'wrong_recipient', 'wrong_sender', 'wrong_asset', 'underpaid',
    'already_used', 'not_found', 'sanctioned', 'late')),
  message text not null,
  block_number bigint,
  attempts integer not null default 0,
  -- When its receipt is asked for next; null: the transfers it named, or its end, are known.
  run_at timestamptz,
  submitted_at timestamptz not null,
  updated_at timestamptz not null,
  unique (paywall_id, tx_hash, address),
  check ((status = 'failed') = (reason is not null))
);
create index submissions_due on submissions (chain_id, run_at) where run_at is not null;
create index submissions_of_hash on submissions (chain_id, tx_hash);

-- A price, paid. Reversed when the chain took a transfer of it away; granted again when it came back.
create table payments (
  id text primary key,
  paywall_id text not null references paywalls,
  chain_id integer not null,
  payer evm_address not null,
  amount base_units not null,
  tx_hash evm_hash not null,
  status text not null check (status in ('granted', 'reversed')),
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index payments_of_payer on payments (paywall_id, payer);

-- Which payment a transfer counts for. The primary key is the promise that it counts once.
create table claims (
  transfer_id bigint primary key references transfers,
  payment_id text not null references payments
);
create index claims_of_payment on claims (payment_id);

create table grants (
  id text primary key,
  payment_id text not null unique references payments,
  paywall_id text not null references paywalls,
  address evm_address not null,
  tx_hash evm_hash not null,
  -- Null: for ever.
  duration_s bigint check (duration_s > 0),
  granted_at timestamptz not null,
  revoked_at timestamptz,
  revoked_by text check (revoked_by in ('merchant', 'reorg')),
  revoke_reason text,
  check ((revoked_at is null) = (revoked_by is null))
);
create index grants_of_address on grants (paywall_id, address, granted_at);

-- The live grants of an address, folded. The row is also the lock under which they change.
create table access (
  paywall_id text not null references paywalls,
  address evm_address not null,
  expires_at timestamptz,
  tx_hash evm_hash,
  primary key (paywall_id, address)
);

-- How far each network is scanned, and who is scanning it.
create table cursors (
  chain_id integer primary key,
  -- The last head, its hash, and the last finalized block that was seen.
  block_number bigint not null,
  block_hash evm_hash not null,
  finalized_number bigint not null,
  looked_at timestamptz,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz
);

-- Each decision about an address and a sanctions list, with its source.
create table screenings (
  id bigint generated always as identity primary key,
  address evm_address not null,
  listed boolean not null,
  source text not null,
  subject text not null,
  screened_at timestamptz not null
);
create index screenings_of_address on screenings (address, source, screened_at);
