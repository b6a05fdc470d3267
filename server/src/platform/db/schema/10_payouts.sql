-- Wallets, payouts and their transactions, and the books that keep them within what came in.

create table wallets (
  id integer generated always as identity primary key,
  chain_id integer not null,
  address evm_address not null,
  next_nonce bigint not null check (next_nonce >= 0),
  status text not null default 'active' check (status in ('active', 'halted')),
  halted_reason text,
  suspect_at timestamptz,
  checked_number bigint,
  check_at timestamptz,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  lane text not null default 'payout' check (lane in ('payout', 'relay')),
  alarms text[] not null default '{}'::text[],
  checked_to bigint,
  checked_position bigint,
  unique (chain_id, address),
  constraint wallets_check check ((status = 'halted') = (halted_reason is not null)),
  constraint wallets_checked_part check ((checked_to is null) = (checked_position is null))
);
comment on table wallets is
  'A wallet of the service on a chain. next_nonce moves in the transaction that writes what is to be signed.';
comment on column wallets.suspect_at is
  'Since when a nonce seems to be used by a transaction that is not the service''s; one observation is not evidence.';
comment on column wallets.checked_number is 'The last block up to which all logs are compared with the rows.';
comment on column wallets.lane is
  'Relays never queue behind payouts: each lane has a wallet, a loop and a limit of its own.';
comment on column wallets.alarms is 'The alarms of the wallet''s last round.';
comment on column wallets.checked_to is
  'The last block of the range that is being compared; `checked_position` is the deposit up to which that is done. '
  'Null between two.';

create table gas_budgets (
  merchant_id text primary key references merchants
);
comment on table gas_budgets is
  'Locked while it is decided whether a payout fits its merchant''s budget, which is one for the wallets of all '
  'networks. It has no content.';

create table payouts (
  id uuid primary key,
  chain_id integer not null,
  kind text not null check (kind in ('share', 'sweep', 'return', 'authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund')),
  source_key text not null unique,
  deposit_id bigint references deposits,
  merchant_id text not null references merchants,
  payment_id text references payments,
  share integer,
  percent_e4 integer,
  replaces uuid references payouts,
  token evm_address not null,
  recipient evm_address not null,
  amount base_units not null check (amount > 0),
  to_address evm_address not null,
  data text not null check (data ~ '^0x[0-9a-f]+$'),
  value base_units not null default 0,
  reserved boolean not null,
  state text not null check (state in ('queued', 'held', 'assigned', 'mined', 'final', 'reverted', 'cancelled')),
  held_reason text check (held_reason in ('short', 'sanctions', 'simulation', 'low_gas', 'reverted', 'gas_budget', 'allowance', 'balance')),
  held_detail text,
  run_at timestamptz not null,
  checks integer not null default 0,
  wallet evm_address,
  nonce bigint,
  tx_hash evm_hash,
  block_number bigint,
  block_hash evm_hash,
  succeeded boolean,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  lane text not null default 'payout',
  gas bigint check (gas > 0),
  payer evm_address,
  auth_nonce evm_hash,
  auth_digest evm_hash,
  relay_by timestamptz,
  stopped boolean not null default false,
  gas_cost base_units,
  gas_cost_at timestamptz,
  mined_at timestamptz,
  transfer_missing_at timestamptz,
  escrow_id text,
  traceparent text,
  batch_id uuid references payouts,
  excess base_units,
  preempted boolean,
  unique (chain_id, wallet, nonce),
  constraint payouts_batched check (batch_id is null or kind = 'settle' and nonce is null and gas_cost is null),
  constraint payouts_check check ((nonce is null) = (wallet is null)),
  constraint payouts_check2 check ((state = 'held') = (held_reason is not null)),
  constraint payouts_check4 check (state in ('mined', 'final', 'reverted') = (tx_hash is not null)),
  constraint payouts_check5 check ((tx_hash is null) = (block_hash is null) and (tx_hash is null) = (block_number is null) and (tx_hash is null) = (succeeded is null)),
  constraint payouts_check6 check (state <> 'final' or succeeded),
  constraint payouts_check7 check (state <> 'reverted' or not succeeded),
  constraint payouts_check8 check ((kind = 'share') = (share is not null and percent_e4 is not null and payment_id is not null)),
  constraint payouts_deposit check (deposit_id is not null or kind in ('settle', 'batch') or escrow_id is not null),
  constraint payouts_escrow check ((escrow_id is not null) = kind in ('reserve', 'capture', 'void', 'refund')),
  constraint payouts_gas_cost_known check ((gas_cost is null) = (gas_cost_at is null) and (gas_cost is null or tx_hash is not null)),
  constraint payouts_lane check (lane = case when kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay' else 'payout' end),
  constraint payouts_nonce_by_state check (state in ('queued', 'held', 'cancelled') = (nonce is null and batch_id is null) or kind = 'return' and state = 'final' and nonce is null),
  constraint payouts_relay_whole check ((lane = 'relay') = (relay_by is not null) and kind in ('authorize', 'settle', 'reserve') = (payer is not null) and (num_nonnulls(payer, auth_nonce, auth_digest) = any (array[0, 3]))),
  constraint payouts_reserved check (case when lane = 'relay' then not reserved else reserved or state in ('held', 'cancelled') end),
  constraint payouts_return_of check (kind <> 'return' or payment_id is not null),
  constraint payouts_stopped check (not stopped or state = 'cancelled')
);
comment on table payouts is
  'A call of one of the service''s wallets, which moves money. It never gives up its nonce.';
comment on column payouts.id is 'Its 16 bytes end the calldata, so that payouts can be found on the chain again.';
comment on column payouts.source_key is 'Why the money moves: one payout for each cause.';
comment on column payouts.deposit_id is
  'Null for an authorization that pays another server''s address, for a batch, and for calls of an escrow.';
comment on column payouts.merchant_id is 'Set by a trigger, from the deposit if there is one.';
comment on column payouts.share is 'Which recipient of the payment''s set; `percent_e4` is its part.';
comment on column payouts.replaces is 'The reverted payout that this one replaces.';
comment on column payouts.reserved is 'Whether the deposit''s book counts it; what does not fit is held.';
comment on column payouts.run_at is
  'When it is tried next, while it has no nonce; `checks` is how often that failed.';
comment on column payouts.tx_hash is 'The attempt that is mined.';
comment on column payouts.lane is 'Set by a trigger, from the kind.';
comment on column payouts.gas is 'Null: that of a release.';
comment on column payouts.payer is
  'Whose authorization it is; `auth_nonce` is its nonce, `auth_digest` the EIP-712 hash that was signed.';
comment on column payouts.relay_by is
  'If it is not signed by then it is cancelled: the authorization, or what it pays, would expire before it is mined.';
comment on column payouts.stopped is 'Cancelled by a person: it is not made again.';
comment on column payouts.gas_cost is 'In wei, from the receipt.';
comment on column payouts.mined_at is 'Set by a trigger.';
comment on column payouts.transfer_missing_at is
  'When its receipt was first seen without the transfer that it should contain.';
comment on column payouts.escrow_id is 'The session whose escrow is called; null for any other kind.';
comment on column payouts.batch_id is
  'The batch that contains it and has its nonce, attempts and gas; null for a call with a nonce of its own.';
comment on column payouts.excess is
  'Of a return that the merchant made itself: how much of it was beyond the payment.';
comment on column payouts.preempted is
  'Of a relay that failed: whether another transaction used its authorization before; null until the chain was '
  'asked.';
-- Who was paid to a wallet first: its refunds are that merchant's.
create index payouts_captures_to on payouts (chain_id, recipient, block_number, nonce) where kind = 'capture' and succeeded;
create index payouts_due on payouts (chain_id, lane, least(checks, 1), run_at, created_at, id) where state in ('queued', 'held');
create index payouts_due_of_merchant on payouts (merchant_id, chain_id, run_at) where state in ('queued', 'held');
-- Captures and voids that failed on chain: three of one payment are an alarm.
create index payouts_failed_calls on payouts (escrow_id, kind) where kind in ('capture', 'void') and state = 'reverted';
-- Whose relays failed on chain, and when.
create index payouts_failed_of_payer on payouts (payer, updated_at) where payer is not null and succeeded = false;
create index payouts_final on payouts (chain_id, block_number) where state = 'final';
-- The cost of all merchants in 24 hours is summed from this index alone.
create index payouts_gas_of_all on payouts (gas_cost_at) include (gas_cost, chain_id, lane) where gas_cost is not null;
-- The same for one merchant; the amount says whether a payout was small.
create index payouts_gas_of_merchant on payouts (merchant_id, gas_cost_at) include (gas_cost, lane, chain_id, token, amount) where gas_cost is not null;
-- Deposits that money is about to leave.
create index payouts_leaving on payouts (chain_id, deposit_id) where state in ('queued', 'held', 'assigned', 'mined') and deposit_id is not null;
create index payouts_mined on payouts (merchant_id, mined_at desc, (id::text) desc) where mined_at is not null;
-- The scan reads which calls of escrows are mined, and marks those whose block is deep enough.
create index payouts_mined_calls on payouts (chain_id, block_number) where escrow_id is not null and state = 'mined';
create unique index payouts_of_authorization on payouts (chain_id, token, payer, auth_nonce) where payer is not null and state not in ('cancelled', 'reverted');
create index payouts_of_batch on payouts (batch_id) where batch_id is not null;
create index payouts_of_deposit on payouts (deposit_id);
create index payouts_of_escrow on payouts (escrow_id) where escrow_id is not null;
create index payouts_of_escrows on payouts (merchant_id, created_at desc, (id::text) desc) where kind in ('capture', 'void');
create index payouts_of_hash on payouts (tx_hash) where tx_hash is not null;
create index payouts_of_kind on payouts (merchant_id, kind, created_at desc, (id::text) desc) where lane = 'payout';
create index payouts_of_merchant on payouts (merchant_id, created_at desc, (id::text) desc);
create index payouts_of_payer on payouts (payer, auth_nonce) where payer is not null;
create index payouts_of_payment on payouts (payment_id) where payment_id is not null;
create index payouts_of_recipient on payouts (merchant_id, recipient);
-- Nearly all payouts are final in the end; of those the order of time finds a page at once.
create index payouts_of_state on payouts (merchant_id, state, created_at desc, (id::text) desc) where lane = 'payout' and state <> 'final';
-- One reservation and one void at a time. Captures and refunds add up.
create unique index payouts_one_reserve on payouts (escrow_id)
  where kind = 'reserve' and state in ('queued', 'held', 'assigned', 'mined', 'final');
create unique index payouts_one_return on payouts (payment_id)
  where kind = 'return' and state not in ('reverted', 'cancelled', 'final');
create unique index payouts_one_void on payouts (escrow_id)
  where kind = 'void' and state in ('queued', 'held', 'assigned', 'mined', 'final');
create index payouts_open on payouts (chain_id, wallet, nonce) where state in ('assigned', 'mined');
-- The wallets whose refunds are under way: one at a time.
create index payouts_open_refunds on payouts (escrow_id) where kind = 'refund' and state in ('queued', 'held', 'assigned');
-- Of a merchant: what waits for its budget, and what was signed and has no price yet.
create index payouts_over_budget on payouts (merchant_id, run_at) where held_reason = 'gas_budget';
create unique index payouts_relay_of_deposit on payouts (deposit_id) where kind = 'authorize' and state in ('queued', 'held', 'assigned', 'mined');
create index payouts_replacing on payouts (replaces) where replaces is not null;
-- The merchants of whom a refund is signed and not mined, whose other refunds wait.
create index payouts_signed_refunds on payouts (chain_id, merchant_id) where kind = 'refund' and state = 'assigned';
-- A payer's relays that succeeded: they let more be in flight at this merchant.
create index payouts_succeeded_of_payer on payouts (payer, merchant_id, updated_at) where payer is not null and succeeded;
-- Whose turn it is (`payouts/pick-due.ts`): each merchant's waiting calls of one class, in their order.
create index payouts_turns on payouts (chain_id, merchant_id,
    (case when kind in ('authorize', 'settle', 'reserve') then 0 when kind = 'refund' then 3
      when checks > 0 then 4 when kind = 'void' or source_key like '%:0' then 1 else 2 end),
    run_at, created_at, id)
  where lane = 'relay' and state in ('queued', 'held');
create index payouts_unexplained on payouts (chain_id, updated_at)
  where succeeded = false and preempted is not true and kind in ('authorize', 'settle');
create index payouts_unpriced on payouts (merchant_id)
  where state in ('assigned', 'mined') and gas_cost is null and batch_id is null;
-- How many wait and why, and for how long, by the index alone.
create index payouts_waiting on payouts (chain_id, lane, state, held_reason) include (run_at, created_at) where state in ('queued', 'held', 'assigned', 'mined');
create index payouts_without_transfer on payouts (chain_id, wallet) where transfer_missing_at is not null;

-- What a batch's end means for its calls, whichever version's process writes it: with the receipt each call gets its own outcome
-- first, when it is mined.
create function end_batch_calls() returns trigger language plpgsql as $$
begin
  update payouts set updated_at = new.updated_at,
      state = case when new.state = 'final' and not succeeded then 'reverted' else new.state end,
      tx_hash = new.tx_hash, block_number = new.block_number, block_hash = new.block_hash,
      succeeded = case new.state when 'final' then succeeded when 'reverted' then false end
    where batch_id = new.id and (state = 'mined' or (state = 'assigned' and new.state = 'reverted'));
  return null;
end $$;

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

create function keep_others_money() returns trigger language plpgsql as $$
begin
  -- What is adopted has left already.
  if current_setting('sluice.adopting', true) is distinct from 'on' and not has_money(old) then
    raise exception 'the money of payout % is not there', old.id;
  end if;
  return new;
end $$;

-- What a payout pays never changes. What a void moves is for the chain to say: all that is left when it is mined.
create function keep_promises() returns trigger language plpgsql as $$
begin
  if (new.id, new.chain_id, new.deposit_id, new.token, new.recipient, new.to_address, new.data, new.value)
      is distinct from
      (old.id, old.chain_id, old.deposit_id, old.token, old.recipient, old.to_address, old.data, old.value)
      or (new.amount <> old.amount and not (old.kind = 'void' and old.state in ('assigned', 'mined'))) then
    raise exception 'what payout % pays can not change', old.id;
  end if;
  if old.nonce is not null and (new.nonce, new.wallet) is distinct from (old.nonce, old.wallet) then
    raise exception 'payout % never gives up its nonce', old.id;
  end if;
  if old.batch_id is not null and new.batch_id is distinct from old.batch_id then
    raise exception 'payout % never leaves its batch', old.id;
  end if;
  if old.state in ('final', 'reverted', 'cancelled') and new.state <> old.state then
    raise exception 'payout % has ended as %', old.id, old.state;
  end if;
  return new;
end $$;

-- What a payment brought to a deposit, without what is promised of it. It is found by the payment: without statistics the planner
-- took the indexes of the deposit and read everything that its paywall had ever been paid, 0.4 ms with 70 payments at one address.
-- "offset 0" and "+ 0" leave it no choice.
create function own_room(payment text, deposit bigint, token text) returns numeric language plpgsql stable as $$
begin
  return coalesce((select sum(t.value) from claims c
        cross join lateral (select * from transfers where id = c.transfer_id offset 0) t
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')
        and not t.single_source), 0)
    - coalesce((select sum(i.amount) from payouts i where i.payment_id = $1 and i.deposit_id + 0 = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0);
end $$;

-- A return that is cancelled before it was signed has moved nothing: the merchant may decide again.
create function reopen_payment() returns trigger language plpgsql as $$
begin
  update payments set status = 'open', returned_at = null, returned_to = null, updated_at = new.updated_at
    where id = new.payment_id and status = 'returned';
  update surpluses set state = 'open', returned_at = null, returned_to = null
    where payment_id = new.payment_id and state = 'returned';
  return null;
end $$;

create function set_lane() returns trigger language plpgsql as $$
begin
  new.lane := case when new.kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund')
    then 'relay' else 'payout' end;
  return new;
end $$;

create function set_merchant() returns trigger language plpgsql as $$
begin
  if new.deposit_id is not null then
    new.merchant_id := (select merchant_id from deposits where id = new.deposit_id);
  end if;
  return new;
end $$;

create function set_mined() returns trigger language plpgsql as $$
begin
  if new.state not in ('mined', 'final') then
    new.mined_at := null;
  elsif tg_op = 'INSERT' or old.mined_at is null then
    new.mined_at := new.updated_at;
  end if;
  return new;
end $$;

-- A call that becomes final makes its escrow due. While the scan is behind, an escrow's time is that of the newest scanned block and ten
-- minutes (`jobs/chain-clock.ts`), so the time of the call would come too late.
create function wake_escrow() returns trigger language plpgsql as $$
begin
  update escrows set run_at = least(new.updated_at, clock_timestamp(),
      (select c.block_time + interval '10 minutes' from cursors c where c.chain_id = new.chain_id))
    where session_id = new.escrow_id;
  return null;
end $$;

-- A session waits for its relay: when that has ended, the session is computed again.
create function wake_session() returns trigger language plpgsql as $$
begin
  update checkout_sessions set run_at = new.updated_at
    where id = (select resource_id from deposits where id = new.deposit_id);
  return null;
end $$;

create trigger payouts_end_batch_calls after update on payouts for each row
  when (new.kind = 'batch' and old.state in ('assigned', 'mined') and new.state <> old.state
    and new.state in ('assigned', 'final', 'reverted'))
  execute function end_batch_calls();
create trigger payouts_keep_committed after insert or update on payouts
  for each row execute function keep_committed();
create trigger payouts_keep_others_money before update on payouts for each row
  when (new.state = 'assigned' and old.state in ('queued', 'held'))
  execute function keep_others_money();
create trigger payouts_keep_promises before update on payouts
  for each row execute function keep_promises();
create trigger payouts_reopen_payment after update on payouts for each row
  when (new.kind = 'return' and new.state = 'cancelled' and old.state <> 'cancelled')
  execute function reopen_payment();
create trigger payouts_set_lane before insert on payouts
  for each row execute function set_lane();
create trigger payouts_set_merchant before insert on payouts
  for each row execute function set_merchant();
create trigger payouts_set_mined before insert or update of state on payouts
  for each row execute function set_mined();
create trigger payouts_wake_escrow after update on payouts for each row
  when (new.escrow_id is not null and (old.state = 'mined' or new.state in ('mined', 'final', 'reverted', 'cancelled'))
    and (new.state, new.block_hash, new.succeeded) is distinct from (old.state, old.block_hash, old.succeeded))
  execute function wake_escrow();
create trigger payouts_wake_session after update on payouts for each row
  when (new.kind = 'authorize' and new.state is distinct from old.state and new.state in ('final', 'reverted', 'cancelled'))
  execute function wake_session();
