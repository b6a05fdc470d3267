-- Splits, and the money that leaves receiving addresses: why, how much, with which nonce and which signed bytes.

-- Who is paid which part. A set never changes: what refers to one (a payment, a version, a session) keeps it for ever,
-- whatever becomes of the split it was copied from. An edit of a split makes another set.
create table recipient_sets (
  id bigint generated always as identity primary key,
  created_at timestamptz not null
);
create table recipients (
  set_id bigint not null references recipient_sets,
  position integer not null,
  address evm_address not null,
  -- Ten-thousandths of a percent: 1,000,000 is all of it.
  percent_e4 integer not null check (percent_e4 between 1 and 1000000),
  label text,
  primary key (set_id, position),
  unique (set_id, address)
);

create table splits (
  id text primary key,
  merchant_id text not null references merchants,
  name text not null check (char_length(name) between 1 and 200),
  description text,
  set_id bigint not null references recipient_sets,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index splits_of_merchant on splits (merchant_id, created_at desc, id desc);

alter table paywalls add column split_id text references splits on delete set null;
create index paywalls_of_split on paywalls (split_id) where split_id is not null;
alter table paywall_versions add column recipient_set_id bigint references recipient_sets;

-- Null: all of it is the merchant's. sweep_at: when a sweep has to take what no sweep has taken yet.
alter table payments add column recipient_set_id bigint references recipient_sets;
alter table payments add column sweep_at timestamptz;
-- Until when the shares are waited for before the merchant is told; null: it was told, or need not wait.
alter table payments add column tell_by timestamptz;
create index payments_to_tell on payments (tell_by) where tell_by is not null;

alter table products add column split_id text references splits on delete set null;
alter table payment_links add column split_id text references splits on delete set null;
create index products_of_split on products (split_id) where split_id is not null;
create index payment_links_of_split on payment_links (split_id) where split_id is not null;
-- Copied when the session is made: later edits of the split never touch it.
alter table checkout_sessions add column recipient_set_id bigint references recipient_sets;

create index payments_to_sweep on payments (chain_id, sweep_at) where sweep_at is not null;

-- A wallet of the service on a chain. next_nonce moves only together with signed bytes.
create table wallets (
  id integer generated always as identity primary key,
  chain_id integer not null,
  address evm_address not null,
  next_nonce bigint not null check (next_nonce >= 0),
  status text not null default 'active' check (status in ('active', 'halted')),
  halted_reason text,
  -- Since when a nonce of ours seems to be used by a transaction that is not ours; one look is not yet evidence.
  suspect_at timestamptz,
  -- Up to which block the transfers out of deposits were compared with the intents, and when next.
  checked_number bigint,
  check_at timestamptz,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  unique (chain_id, address),
  check ((status = 'halted') = (halted_reason is not null))
);

-- Money that is to move out of a deposit. Nothing leads from a nonce back to none.
create table intents (
  -- Its 16 bytes end the calldata, so that what was paid can be rebuilt from the chain.
  id uuid primary key,
  chain_id integer not null,
  kind text not null check (kind in ('share', 'sweep', 'return', 'authorize', 'capture', 'void', 'refund', 'settle')),
  -- Why the money moves; asking twice makes one intent.
  source_key text not null unique,
  deposit_id bigint not null references deposits,
  -- Whose money it is: follows from the deposit, and is kept here so that a list is one index.
  merchant_id text not null references merchants,
  payment_id text references payments,
  -- Which recipient of the payment's set, and its part.
  share integer,
  percent_e4 integer,
  -- The reverted intent in whose place this one stands.
  replaces uuid references intents,
  token evm_address not null,
  recipient evm_address not null,
  amount base_units not null check (amount > 0),
  to_address evm_address not null,
  data text not null check (data ~ '^0x[0-9a-f]+$'),
  value base_units not null default 0,
  -- Whether the deposit's book counts it; what does not fit the book waits as held.
  reserved boolean not null,
  state text not null check (state in ('queued', 'held', 'assigned', 'mined', 'final', 'reverted', 'cancelled')),
  held_reason text check (held_reason in ('short', 'sanctions', 'simulation', 'low_gas', 'reverted')),
  held_detail text,
  -- When it is looked at next, while it has no nonce; how often that was in vain.
  run_at timestamptz not null,
  checks integer not null default 0,
  wallet evm_address,
  nonce bigint,
  -- Where it is mined, by which of its attempts, and whether that succeeded.
  tx_hash evm_hash,
  block_number bigint,
  block_hash evm_hash,
  succeeded boolean,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (chain_id, wallet, nonce),
  check ((nonce is null) = (wallet is null)),
  check ((state in ('queued', 'held', 'cancelled')) = (nonce is null)),
  check ((state = 'held') = (held_reason is not null)),
  check (reserved or state in ('held', 'cancelled')),
  check ((state in ('mined', 'final', 'reverted')) = (tx_hash is not null)),
  check ((tx_hash is null) = (block_hash is null) and (tx_hash is null) = (block_number is null)
    and (tx_hash is null) = (succeeded is null)),
  check (state <> 'final' or succeeded),
  check (state <> 'reverted' or not succeeded),
  check ((kind = 'share') = (share is not null and percent_e4 is not null and payment_id is not null))
);
create index intents_due on intents (chain_id, run_at) where state in ('queued', 'held');
create index intents_open on intents (chain_id, wallet, nonce) where state in ('assigned', 'mined');
create index intents_of_payment on intents (payment_id) where payment_id is not null;
create index intents_of_deposit on intents (deposit_id);
create index intents_of_merchant on intents (merchant_id, created_at desc, (id::text) desc);
create index intents_of_recipient on intents (merchant_id, recipient);
create index intents_of_hash on intents (tx_hash) where tx_hash is not null;
create index intents_final on intents (chain_id, block_number) where state = 'final';

-- Signed bytes. Whatever was broadcast is a row here, committed before.
create table attempts (
  id bigint generated always as identity primary key,
  intent_id uuid not null references intents,
  chain_id integer not null,
  wallet evm_address not null,
  nonce bigint not null,
  n integer not null,
  raw text not null,
  hash evm_hash not null unique,
  gas bigint not null,
  max_fee numeric(78,0) not null,
  tip numeric(78,0) not null check (tip <= max_fee),
  -- By the database's clock, as the times between attempts are measured by several processes.
  created_at timestamptz not null default clock_timestamp(),
  sent_at timestamptz,
  sends integer not null default 0,
  last_result text check (last_result in ('sent', 'look', 'wait', 'bump', 'alarm', 'unknown')),
  unique (chain_id, wallet, nonce, n)
);
create index attempts_of_intent on attempts (intent_id);

-- Which transfers in a sweep takes out, and how much of each.
create table sweep_parts (
  intent_id uuid not null references intents,
  transfer_id bigint not null references transfers,
  amount base_units not null check (amount > 0),
  primary key (intent_id, transfer_id)
);
create index sweep_parts_of_transfer on sweep_parts (transfer_id);

-- What came into a deposit (confirmed) and what is promised out of it. shortfall: promised and signed before the chain
-- took the money back; nothing new fits in while it lasts.
create table deposit_books (
  deposit_id bigint not null references deposits,
  token evm_address not null,
  inflow base_units not null default 0,
  committed base_units not null default 0,
  shortfall base_units not null default 0,
  primary key (deposit_id, token),
  constraint books_balance check (committed <= inflow + shortfall)
);

create function keep_inflow() returns trigger language plpgsql as $$
declare
  change numeric := 0;
begin
  if new.state in ('confirmed', 'final') then change := new.value; end if;
  if tg_op = 'UPDATE' and old.state in ('confirmed', 'final') then change := change - old.value; end if;
  if change <> 0 then
    insert into deposit_books (deposit_id, token) values (new.deposit_id, new.token) on conflict do nothing;
    update deposit_books set inflow = inflow + change, shortfall = greatest(0, committed - inflow - change)
      where deposit_id = new.deposit_id and token = new.token;
  end if;
  return null;
end $$;
create trigger transfers_keep_inflow after insert or update on transfers for each row execute function keep_inflow();

create function set_merchant() returns trigger language plpgsql as $$
begin
  select coalesce(w.merchant_id, s.merchant_id) into new.merchant_id from deposits d
    left join paywalls w on w.id = d.paywall_id left join checkout_sessions s on s.id = d.session_id
    where d.id = new.deposit_id;
  return new;
end $$;
create trigger intents_set_merchant before insert on intents for each row execute function set_merchant();

create function keep_committed() returns trigger language plpgsql as $$
declare
  change numeric := 0;
begin
  if new.reserved and new.state not in ('cancelled', 'reverted') then change := new.amount; end if;
  if tg_op = 'UPDATE' and old.reserved and old.state not in ('cancelled', 'reverted') then
    change := change - old.amount;
  end if;
  if change <> 0 then
    update deposit_books set committed = committed + change,
        shortfall = case when change < 0 then greatest(0, committed + change - inflow) else shortfall end
      where deposit_id = new.deposit_id and token = new.token;
    if not found then
      raise exception 'nothing ever came into deposit %', new.deposit_id;
    end if;
  end if;
  return null;
end $$;
create trigger intents_keep_committed after insert or update on intents for each row execute function keep_committed();

-- An intent's payment, once decided, does not change; a nonce, once given, stays; an end is an end.
create function keep_promises() returns trigger language plpgsql as $$
begin
  if (new.id, new.chain_id, new.deposit_id, new.token, new.recipient, new.amount, new.to_address, new.data, new.value)
      is distinct from
      (old.id, old.chain_id, old.deposit_id, old.token, old.recipient, old.amount, old.to_address, old.data, old.value) then
    raise exception 'what intent % pays can not change', old.id;
  end if;
  if old.nonce is not null and (new.nonce, new.wallet) is distinct from (old.nonce, old.wallet) then
    raise exception 'intent % has its nonce for ever', old.id;
  end if;
  if old.state in ('final', 'reverted', 'cancelled') and new.state <> old.state then
    raise exception 'intent % has ended as %', old.id, old.state;
  end if;
  return new;
end $$;
create trigger intents_keep_promises before update on intents for each row execute function keep_promises();

create function keep_attempts() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'attempts are never deleted';
  end if;
  if (new.intent_id, new.nonce, new.n, new.raw, new.hash) is distinct from (old.intent_id, old.nonce, old.n, old.raw, old.hash) then
    raise exception 'attempt % is signed and does not change', old.id;
  end if;
  return new;
end $$;
create trigger attempts_keep before update or delete on attempts for each row execute function keep_attempts();

-- What was there before this migration: its books, and its sweeps to come.
insert into deposit_books (deposit_id, token, inflow)
  select deposit_id, token, sum(value) from transfers where state in ('confirmed', 'final') group by 1, 2;
update payments set sweep_at = updated_at where status = 'granted';

-- The merchant's money in one list: what came, and what went out.
create view transactions as
  select id, merchant_id, 'payment'::text as type, status, exception, chain_id, amount::numeric(78,0) as amount,
    tx_hash::text as tx_hash, payer::text as payer, null::text as recipient, paywall_id, session_id, id as payment_id, created_at
  from payments
  union all
  select id::text, merchant_id, kind, state, null, chain_id, amount::numeric(78,0), tx_hash::text, null, recipient::text, null,
    null, payment_id, created_at
  from intents;
