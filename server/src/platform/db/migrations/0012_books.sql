-- The books: whose each log is, what left without an intent, and how far everything was compared with the chain.

-- Whose it is, so that a list is one index, however many others there are.
alter table deposits add column merchant_id text references merchants;
update deposits d set merchant_id = w.merchant_id from paywalls w where w.id = d.paywall_id;
update deposits d set merchant_id = s.merchant_id from checkout_sessions s where s.id = d.session_id;
alter table deposits alter column merchant_id set not null;
create index deposits_of_merchant on deposits (merchant_id, id desc);

-- At which finalized block the chain's balance was last as the books have it. A new address holds nothing at the head.
alter table deposits add column balanced_number bigint;

create function set_deposit_facts() returns trigger language plpgsql as $$
begin
  new.merchant_id := coalesce((select merchant_id from paywalls where id = new.paywall_id),
    (select merchant_id from checkout_sessions where id = new.session_id));
  new.balanced_number := (select block_number from cursors where chain_id = new.chain_id);
  return new;
end $$;
create trigger deposits_set_facts before insert on deposits for each row execute function set_deposit_facts();

alter table transfers add column merchant_id text references merchants;
update transfers t set merchant_id = d.merchant_id from deposits d where d.id = t.deposit_id;
alter table transfers alter column merchant_id set not null;
-- When a reorg took it away, or mined it again with another value or sender: what was counted by it may differ since.
alter table transfers add column reorged_at timestamptz;
-- Nobody wrote down which of those of before it was.
update transfers set reorged_at = created_at;

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
create trigger transfers_set_facts before insert or update on transfers for each row execute function set_transfer_facts();
create index transfers_of_merchant on transfers (merchant_id, block_time desc, (id::text) desc)
  where state in ('confirmed', 'mined', 'final');
create index transfers_final on transfers (chain_id, block_number) where state = 'final';

-- When it was seen in a block.
alter table intents add column mined_at timestamptz;
update intents set mined_at = updated_at where state in ('mined', 'final');

create function set_mined() returns trigger language plpgsql as $$
begin
  if new.state not in ('mined', 'final') then
    new.mined_at := null;
  elsif tg_op = 'INSERT' or old.mined_at is null then
    new.mined_at := new.updated_at;
  end if;
  return new;
end $$;
create trigger intents_set_mined before insert or update of state on intents for each row execute function set_mined();
create index intents_mined on intents (merchant_id, mined_at desc, (id::text) desc) where mined_at is not null;

-- What left a deposit and no intent meant: recovered to its owner by anyone, or unknown, which halted the wallet.
create table outflows (
  id uuid primary key default gen_random_uuid(),
  chain_id integer not null,
  deposit_id bigint not null references deposits,
  merchant_id text not null references merchants,
  reason text not null check (reason in ('recovery', 'unknown')),
  tx_hash evm_hash not null,
  token evm_address not null,
  recipient evm_address not null,
  amount base_units not null check (amount > 0),
  block_number bigint not null,
  block_hash evm_hash not null,
  log_index integer not null,
  block_time timestamptz not null,
  created_at timestamptz not null,
  unique (chain_id, tx_hash, log_index)
);
create index outflows_of_deposit on outflows (deposit_id);
create index outflows_of_merchant on outflows (merchant_id, block_time desc, (id::text) desc);

-- How far a network's books were compared with themselves and with the chain, and who does so.
create table reconciliations (
  chain_id integer primary key,
  -- When what moved is looked at next, and up to which block that was done.
  hour_at timestamptz not null,
  moved_number bigint,
  -- The pass over everything: where it goes on; null: it is over.
  pass_at timestamptz not null,
  deposit_position bigint,
  transfer_position bigint,
  intent_position uuid,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz
);

-- What moved or may have. Its parts have no conditions of their own, so that a page of the books is read from an index of
-- each, in order; with conditions Postgres reads and sorts them all.
create view movements as
  select id::text as id, merchant_id, 'in'::text as direction, null::text as reason, state, chain_id, deposit_id,
    token::text as token, value::numeric(78,0) as amount, from_address::text as sender, to_address::text as recipient,
    tx_hash::text as tx_hash, block_number, block_time as at, id as transfer_id, null::uuid as intent_id,
    null::text as payment_id
  from transfers
  union all
  select id::text, merchant_id, 'out', kind, state, chain_id, deposit_id, token::text, amount::numeric(78,0), null,
    recipient::text, tx_hash::text, block_number, mined_at, null, id, payment_id
  from intents
  union all
  select id::text, merchant_id, 'out', reason, 'final', chain_id, deposit_id, token::text, amount::numeric(78,0), null,
    recipient::text, tx_hash::text, block_number, block_time, null, null, null
  from outflows;

-- Every log into and out of a merchant's deposits.
create view books as select * from movements
  where state in ('confirmed', 'mined', 'final') and at is not null
    and (reason is null or reason in ('share', 'sweep', 'return', 'recovery', 'unknown'));
