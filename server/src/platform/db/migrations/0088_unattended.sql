-- Whoever has the payout key can send the money of deposits whose approver is the service to anyone. The factory reports
-- it in the same block, and this is how far its reports are read.
create table outflow_watches (
  chain_id integer primary key,
  block_number bigint not null,
  -- When all blocks were last read.
  read_at timestamptz not null,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz
);

-- What halted the wallets when it happened: the comparison of the final blocks records it, and does not halt them again.
create table noticed_outflows (
  chain_id integer not null,
  tx_hash text not null,
  deposit text not null,
  noticed_at timestamptz not null,
  primary key (chain_id, tx_hash, deposit)
);

-- How often the worker that ended the last round makes one. Processes with another setting judge the scan by this. Until
-- now the default was a minute.
alter table cursors add column interval_ms integer not null default 60000;

-- What the endpoint said, for the alarm.
alter table endpoint_troubles add column answer text;

-- Money at a paywall whose sender is nobody, such as the zero address of what is minted.
alter table payments drop constraint payments_exception_check;
alter table payments add constraint payments_exception_check check (exception in
  ('underpaid', 'overpaid', 'late', 'duplicate', 'wrong_asset', 'sanctioned', 'no_buyer'));
