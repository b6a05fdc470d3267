-- A batch is a payout of its own (kind `batch`): one transaction of the relay wallet that carries out several agents' authorizations of
-- one merchant. It has the nonce, the attempts and the gas; its calls (`batch_id`) have neither, and end as its
-- receipt shows.
--
-- Locks: `payouts` against reads and writes until all migrations of this start are committed: some seconds for each million rows.
alter table payouts add column batch_id uuid references payouts;
alter table payouts drop constraint payouts_kind_check;
alter table payouts add constraint payouts_kind_check check (kind in
  ('share', 'sweep', 'return', 'authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund'));
alter table payouts drop constraint payouts_lane;
alter table payouts add constraint payouts_lane check (lane =
  case when kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay' else 'payout' end);
alter table payouts drop constraint payouts_deposit;
alter table payouts add constraint payouts_deposit
  check (deposit_id is not null or kind in ('settle', 'batch') or escrow_id is not null);
-- A call of a batch has no nonce of its own, in any state.
alter table payouts drop constraint payouts_nonce_by_state;
alter table payouts add constraint payouts_nonce_by_state check (
  (state in ('queued', 'held', 'cancelled')) = (nonce is null and batch_id is null)
  or (kind = 'return' and state = 'final' and nonce is null));
alter table payouts add constraint payouts_batched check (batch_id is null or (kind = 'settle' and nonce is null and gas_cost is null));

create index payouts_of_batch on payouts (batch_id) where batch_id is not null;
-- The cost of a call is its batch's.
drop index payouts_unpriced;
create index payouts_unpriced on payouts (merchant_id)
  where state in ('assigned', 'mined') and gas_cost is null and batch_id is null;

create or replace function set_lane() returns trigger language plpgsql as $$
begin
  new.lane := case when new.kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund')
    then 'relay' else 'payout' end;
  return new;
end $$;

create or replace function keep_promises() returns trigger language plpgsql as $$
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
create trigger payouts_end_batch_calls after update on payouts for each row
  when (new.kind = 'batch' and old.state in ('assigned', 'mined') and new.state <> old.state
    and new.state in ('assigned', 'final', 'reverted'))
  execute function end_batch_calls();

-- A payment is an agent's where what it pays for was sold to one, alone or in a batch.
create or replace function set_agent() returns trigger language plpgsql as $$
begin
  new.agent := exists (select from transaction_attempts a join payouts i on i.id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and i.kind = 'settle' and d.resource_id = new.resource_id)
    or exists (select from transaction_attempts a join payouts i on i.batch_id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and d.resource_id = new.resource_id)
    or exists (select from settlements s where s.found_hash = new.tx_hash and s.resource_id = new.resource_id);
  return new;
end $$;
