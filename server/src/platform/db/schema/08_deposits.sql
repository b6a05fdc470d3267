-- Receiving addresses, the scan of the chain, and what it found.

create table deposits (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  address evm_address not null,
  factory evm_address not null,
  salt evm_hash not null,
  owner evm_address not null,
  open_after_s bigint not null,
  created_at timestamptz not null,
  watched boolean not null default true,
  watched_until timestamptz not null,
  watched_number bigint,
  dormant_since timestamptz,
  check_at timestamptz,
  merchant_id text not null,
  balanced_number bigint,
  resource_id text not null,
  approver evm_address not null,
  payees_hash evm_hash not null,
  recipient_set_id bigint references recipient_sets,
  older_factory boolean not null default false,
  unique (chain_id, address),
  constraint deposits_dormant_since check (watched or watched_number is not null and dormant_since is not null),
  constraint deposits_resource foreign key (resource_id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
comment on table deposits is
  'A receiving address. salt, owner and open_after_s are all that the factory needs to release or recover its money.';
comment on column deposits.watched is
  'A watched address is in every scan of the logs; a dormant one has its balance read from time to time.';
comment on column deposits.watched_until is 'Until when it is watched though nothing is for sale there.';
comment on column deposits.watched_number is
  'The block up to which its transfers are known, if the ordinary scan does not cover it.';
comment on column deposits.merchant_id is
  'Set by a trigger, like balanced_number: the final block at which the chain''s balance last equalled the books.';
comment on column deposits.approver is
  'Its signature sends money back to payers: nobody''s if zero; the factory''s own address means the service.';
comment on column deposits.payees_hash is 'The hash of the recipients of `recipient_set_id`; zero without a split.';
comment on column deposits.recipient_set_id is 'Null without a split.';
comment on column deposits.older_factory is
  'From before addresses named an approver: the service does not know its terms, and can''t move its money.';
create index deposits_dormant on deposits (chain_id, check_at) where not watched;
create index deposits_dormant_since on deposits (chain_id, dormant_since) where not watched;
-- The factories of a network: one page for all deposits of one factory.
create index deposits_of_factory on deposits (chain_id, factory);
create index deposits_of_merchant on deposits (merchant_id, id desc);
create index deposits_of_older_factory on deposits (id) where older_factory;
create index deposits_of_resource on deposits (resource_id);
-- A session has one address for all of its life.
create unique index deposits_of_session on deposits (resource_id) where starts_with(resource_id, 'cs_');
-- Which paywalls' addresses open next, so that those to be replaced are found without a look at all of them.
create index deposits_opening on deposits (open_after_s) where starts_with(resource_id, 'pw_');
-- The addresses that were in the scan at some time since a block, by id.
create index deposits_scanned on deposits (chain_id, id) where watched;
create index deposits_watched on deposits (chain_id, watched_until) where watched;

create table paywall_versions (
  paywall_id text not null references paywalls,
  n integer not null,
  price base_units not null,
  active boolean not null,
  deposit_id bigint not null references deposits,
  from_at timestamptz not null,
  until_at timestamptz,
  primary key (paywall_id, n),
  constraint paywall_versions_check check (until_at >= from_at)
);
comment on table paywall_versions is
  'Price, switch and receiving address of a paywall, dated: a transfer counts by the version of the time when it was '
  'mined.';
create index paywall_versions_of_deposit on paywall_versions (deposit_id);
create unique index paywall_versions_open on paywall_versions (paywall_id) where until_at is null;

create table cursors (
  chain_id integer primary key,
  block_number bigint not null,
  block_hash evm_hash not null,
  finalized_number bigint not null,
  looked_at timestamptz,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  lag_blocks bigint not null default 0,
  lag_low bigint,
  lag_low_at timestamptz,
  block_time timestamptz,
  interval_ms integer not null default 60000
);
comment on table cursors is 'How far each network is scanned, and which process scans it.';
comment on column cursors.block_number is
  'The last head; `finalized_number` is the last finalized block that was seen.';
comment on column cursors.lag_blocks is
  'How many blocks the logs are behind the head; `lag_low` is the lowest value since the scan fell behind, and '
  '`lag_low_at` when that was.';
comment on column cursors.block_time is
  'When that block was made, by which a checkout expires; null until the first round.';
comment on column cursors.interval_ms is 'How often the worker that ended the last round makes one, in milliseconds.';

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
  suspect_at timestamptz,
  run_at timestamptz,
  created_at timestamptz not null,
  merchant_id text not null references merchants,
  reorged_at timestamptz,
  single_source boolean not null default false,
  applied boolean not null default false,
  unique (chain_id, tx_hash, token, to_address, k)
);
comment on table transfers is
  'Every Transfer log to a deposit that was ever seen. k counts the transfers of one token to one address within a '
  'transaction: log_index changes when the transaction is mined again, k does not.';
comment on column transfers.suspect_at is
  'When another block was first seen at this height; one observation is not evidence.';
comment on column transfers.run_at is 'When settling reads it; null: nothing to do.';
comment on column transfers.merchant_id is
  'Set by a trigger, like reorged_at: when a reorg removed it, or mined it again with another value or sender.';
comment on column transfers.single_source is
  'Whether only one of two endpoints reports it; see `chain/agreement.ts`.';
comment on column transfers.applied is
  'Whether a granted or returned payment claims it; it may be set late, but is never wrongly true.';
create index transfers_due on transfers (chain_id, run_at) where run_at is not null;
create index transfers_due_of_payer on transfers (deposit_id, from_address) where run_at is not null;
create index transfers_final on transfers (chain_id, block_number) where state = 'final';
-- What one settlement reads of an address is bounded: the transfers of most money, of all senders at a checkout, of one at a
-- paywall. By these indexes the others are not read, however many a stranger sends.
create index transfers_greatest on transfers (deposit_id, token, value desc, id) where not applied;
create index transfers_greatest_of_payer on transfers (deposit_id, from_address, token, value desc, id) where not applied;
create index transfers_of_merchant on transfers (merchant_id, block_time desc, (id::text) desc)
  where state in ('confirmed', 'mined', 'final');
create index transfers_of_payer on transfers (deposit_id, from_address);
-- The scan reads blocks, not each transfer in them: anyone can put thousands of transfers into a block. These find the blocks that may
-- be confirmed, and those that another one may have displaced.
create index transfers_seen on transfers (chain_id, block_number) where state = 'seen';
create index transfers_single on transfers (chain_id, id) where single_source and state in ('seen', 'confirmed');
create index transfers_suspected on transfers (chain_id, block_number) where suspect_at is not null;
create index transfers_unfinal on transfers (chain_id, block_number) where state in ('seen', 'confirmed');

create table tokens (
  chain_id integer not null,
  address evm_address not null,
  symbol text,
  decimals integer,
  asked_at timestamptz not null,
  primary key (chain_id, address),
  constraint tokens_check check (symbol is null or decimals is not null)
);
comment on table tokens is 'What other tokens say about themselves; null if they say nothing that can be shown.';

create table token_scans (
  chain_id integer primary key,
  from_block bigint not null,
  to_block bigint not null,
  from_time timestamptz not null,
  after_id bigint not null default 0,
  blocks bigint not null check (blocks > 0),
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz
);
comment on table token_scans is 'The scan for tokens that nothing is sold for; see `scanner/scan-foreign-tokens.ts`.';
comment on column token_scans.from_block is
  'The first block that is read now; none is while `to_block`, the last, is below it.';
comment on column token_scans.from_time is 'The time of the block before `from_block`.';
comment on column token_scans.after_id is 'The deposits up to this id are read.';
comment on column token_scans.blocks is 'How many blocks are read next.';

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
comment on table foreign_tokens is 'A token at a receiving address that nothing is sold for.';
comment on column foreign_tokens.tx_hash is 'The first transfer of it that was found.';
comment on column foreign_tokens.balance is
  'The balance that the token reports for the address, in base units; null until that is known.';
create index foreign_tokens_due on foreign_tokens (chain_id, check_at);
create index foreign_tokens_found on foreign_tokens (chain_id, found_at);
create index foreign_tokens_listed on foreign_tokens (merchant_id, id desc) where balance > 0;

create table endpoint_troubles (
  chain_id integer not null,
  position integer not null,
  kind text not null check (kind in ('silent', 'behind', 'contradiction', 'logs', 'slow', 'useless')),
  since timestamptz not null,
  last_at timestamptz not null,
  is_alarm boolean not null,
  answer text,
  primary key (chain_id, "position", kind)
);
comment on table endpoint_troubles is
  'An endpoint that differs from the others, lags, or does not respond; `position` is its place in the setting, from '
  '0.';
comment on column endpoint_troubles.is_alarm is 'Whether it lasted long enough, or is clear enough, for an alarm.';
comment on column endpoint_troubles.answer is 'What it responded, without what may be a key.';

create function keep_inflow() returns trigger language plpgsql as $$
declare
  changed record;
begin
  -- In one order, as two transactions may write transfers to the same addresses.
  if tg_op = 'INSERT' then
    for changed in
      select deposit_id, token, sum(value) as value from added where state in ('confirmed', 'final') group by 1, 2 order by 1, 2
    loop
      perform add_inflow(changed.deposit_id, changed.token, changed.value);
    end loop;
  else
    for changed in
      select deposit_id, token, sum(value) as value from (
        select deposit_id, token, value from added where state in ('confirmed', 'final')
        union all select deposit_id, token, -value from removed where state in ('confirmed', 'final')) as both_states
      group by 1, 2 having sum(value) <> 0 order by 1, 2
    loop
      perform add_inflow(changed.deposit_id, changed.token, changed.value);
    end loop;
  end if;
  return null;
end $$;

create function keep_older_factory() returns trigger language plpgsql as $$
begin
  raise exception 'deposit % was made by this version, and stays so', new.id;
end $$;

create function set_deposit_facts() returns trigger language plpgsql as $$
begin
  new.merchant_id := (select merchant_id from resources where id = new.resource_id);
  new.balanced_number := (select block_number from cursors where chain_id = new.chain_id);
  return new;
end $$;

create function set_transfer_facts() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    new.merchant_id := (select merchant_id from deposits where id = new.deposit_id);
  elsif (new.state = 'gone' and old.state <> 'gone')
      or (new.value, new.from_address) is distinct from (old.value, old.from_address) then
    new.reorged_at := clock_timestamp();
  end if;
  return new;
end $$;

create trigger transfers_keep_inflow_added after insert on transfers
  referencing new table as added for each statement execute function keep_inflow();
create trigger transfers_keep_inflow_changed after update on transfers
  referencing old table as removed new table as added for each statement execute function keep_inflow();
create trigger deposits_keep_older before update of older_factory on deposits for each row
  when (new.older_factory is distinct from old.older_factory) execute function keep_older_factory();
create trigger deposits_none_older before insert on deposits for each row
  when (new.older_factory) execute function keep_older_factory();
create trigger deposits_set_facts before insert on deposits for each row execute function set_deposit_facts();
create trigger transfers_set_facts before insert or update on transfers for each row execute function set_transfer_facts();
