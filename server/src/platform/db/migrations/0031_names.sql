-- Stored names in the words of this field. What moves money out of a deposit is a payout, and each transaction that is signed
-- for it is a transaction attempt (a webhook has attempts too). An address is watched or dormant: hot and cold mean where a key
-- is kept. A merchant is notified, and an operator retries a payout: a release is what the contract does.
--
-- Locks: `intents`, `attempts`, `sweep_parts`, `reconciliations`, `deposits`, `payments`, `wallets` and `operator_actions` against
-- reads and writes until all migrations of this start are committed. Renaming reads no rows. The rows of the last two tables are
-- read once; both are small.

alter table intents rename to payouts;
alter table attempts rename to transaction_attempts;
alter sequence attempts_id_seq rename to transaction_attempts_id_seq;
alter table transaction_attempts rename column intent_id to payout_id;
alter table sweep_parts rename column intent_id to payout_id;
alter table operator_actions rename column intent_id to payout_id;
alter table reconciliations rename column intent_position to payout_position;
alter view movements rename column intent_id to payout_id;
alter view books rename column intent_id to payout_id;

alter table payouts rename constraint intents_amount_check to payouts_amount_check;
alter table payouts rename constraint intents_chain_id_wallet_nonce_key to payouts_chain_id_wallet_nonce_key;
alter table payouts rename constraint intents_check to payouts_check;
alter table payouts rename constraint intents_check1 to payouts_check1;
alter table payouts rename constraint intents_check2 to payouts_check2;
alter table payouts rename constraint intents_check4 to payouts_check4;
alter table payouts rename constraint intents_check5 to payouts_check5;
alter table payouts rename constraint intents_check6 to payouts_check6;
alter table payouts rename constraint intents_check7 to payouts_check7;
alter table payouts rename constraint intents_check8 to payouts_check8;
alter table payouts rename constraint intents_data_check to payouts_data_check;
alter table payouts rename constraint intents_deposit_id_fkey to payouts_deposit_id_fkey;
alter table payouts rename constraint intents_gas_check to payouts_gas_check;
alter table payouts rename constraint intents_gas_cost_known to payouts_gas_cost_known;
alter table payouts rename constraint intents_held_reason_check to payouts_held_reason_check;
alter table payouts rename constraint intents_kind_check to payouts_kind_check;
alter table payouts rename constraint intents_lane to payouts_lane;
alter table payouts rename constraint intents_merchant_id_fkey to payouts_merchant_id_fkey;
alter table payouts rename constraint intents_payment_id_fkey to payouts_payment_id_fkey;
alter table payouts rename constraint intents_pkey to payouts_pkey;
alter table payouts rename constraint intents_relay_whole to payouts_relay_whole;
alter table payouts rename constraint intents_replaces_fkey to payouts_replaces_fkey;
alter table payouts rename constraint intents_reserved to payouts_reserved;
alter table payouts rename constraint intents_return_of to payouts_return_of;
alter table payouts rename constraint intents_source_key_key to payouts_source_key_key;
alter table payouts rename constraint intents_state_check to payouts_state_check;
alter table payouts rename constraint intents_stopped to payouts_stopped;
alter table operator_actions rename constraint operator_actions_intent_id_fkey to operator_actions_payout_id_fkey;
alter table sweep_parts rename constraint sweep_parts_intent_id_fkey to sweep_parts_payout_id_fkey;
alter table transaction_attempts rename constraint attempts_chain_id_wallet_nonce_n_key to transaction_attempts_chain_id_wallet_nonce_n_key;
alter table transaction_attempts rename constraint attempts_check to transaction_attempts_check;
alter table transaction_attempts rename constraint attempts_hash_key to transaction_attempts_hash_key;
alter table transaction_attempts rename constraint attempts_intent_id_fkey to transaction_attempts_payout_id_fkey;
alter table transaction_attempts rename constraint attempts_last_result_check to transaction_attempts_last_result_check;
alter table transaction_attempts rename constraint attempts_pkey to transaction_attempts_pkey;

alter index attempts_of_intent rename to transaction_attempts_of_payout;
alter index intents_due rename to payouts_due;
alter index intents_due_of_merchant rename to payouts_due_of_merchant;
alter index intents_failed_of_payer rename to payouts_failed_of_payer;
alter index intents_final rename to payouts_final;
alter index intents_gas_of_all rename to payouts_gas_of_all;
alter index intents_gas_of_merchant rename to payouts_gas_of_merchant;
alter index intents_mined rename to payouts_mined;
alter index intents_of_authorization rename to payouts_of_authorization;
alter index intents_of_deposit rename to payouts_of_deposit;
alter index intents_of_hash rename to payouts_of_hash;
alter index intents_of_merchant rename to payouts_of_merchant;
alter index intents_of_payer rename to payouts_of_payer;
alter index intents_of_payment rename to payouts_of_payment;
alter index intents_of_recipient rename to payouts_of_recipient;
alter index intents_one_return rename to payouts_one_return;
alter index intents_open rename to payouts_open;
alter index intents_over_budget rename to payouts_over_budget;
alter index intents_relay_of_deposit rename to payouts_relay_of_deposit;
alter index intents_unpriced rename to payouts_unpriced;
alter index intents_waiting rename to payouts_waiting;
alter index intents_without_transfer rename to payouts_without_transfer;

alter trigger attempts_keep on transaction_attempts rename to transaction_attempts_keep;
alter trigger intents_keep_committed on payouts rename to payouts_keep_committed;
alter trigger intents_keep_others_money on payouts rename to payouts_keep_others_money;
alter trigger intents_keep_promises on payouts rename to payouts_keep_promises;
alter trigger intents_reopen_payment on payouts rename to payouts_reopen_payment;
alter trigger intents_set_lane on payouts rename to payouts_set_lane;
alter trigger intents_set_merchant on payouts rename to payouts_set_merchant;
alter trigger intents_set_mined on payouts rename to payouts_set_mined;
alter trigger intents_wake_session on payouts rename to payouts_wake_session;
alter function keep_attempts() rename to keep_transaction_attempts;

-- The text of a function does not follow a renamed table.
create or replace function keep_transaction_attempts() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'transaction attempts are never deleted';
  end if;
  if (new.payout_id, new.nonce, new.n, new.raw, new.hash, new.empty) is distinct from
      (old.payout_id, old.nonce, old.n, old.raw, old.hash, old.empty) then
    raise exception 'transaction attempt % is signed and does not change', old.id;
  end if;
  return new;
end $$;

create or replace function keep_promises() returns trigger language plpgsql as $$
begin
  if (new.id, new.chain_id, new.deposit_id, new.token, new.recipient, new.amount, new.to_address, new.data, new.value)
      is distinct from
      (old.id, old.chain_id, old.deposit_id, old.token, old.recipient, old.amount, old.to_address, old.data, old.value) then
    raise exception 'what payout % pays can not change', old.id;
  end if;
  if old.nonce is not null and (new.nonce, new.wallet) is distinct from (old.nonce, old.wallet) then
    raise exception 'payout % never gives up its nonce', old.id;
  end if;
  if old.state in ('final', 'reverted', 'cancelled') and new.state <> old.state then
    raise exception 'payout % has ended as %', old.id, old.state;
  end if;
  return new;
end $$;

create or replace function own_room(payment text, deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select sum(t.value) from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')
        and not t.single_source), 0)
    - coalesce((select sum(i.amount) from payouts i where i.payment_id = $1 and i.deposit_id = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0)
$$;

create or replace function has_money(i payouts) returns boolean language sql stable as $$
  select case
    when i.lane <> 'payout' then true
    when not i.reserved then false
    when i.kind = 'sweep' then room_in(i.deposit_id, i.token) >= 0 and not exists (
      select from sweep_parts s join transfers t on t.id = s.transfer_id
      where s.payout_id = i.id and (t.state not in ('confirmed', 'final') or t.single_source))
    when i.payment_id is null then true
    else own_room(i.payment_id, i.deposit_id, i.token) >= 0
      and (i.kind = 'return' or room_in(i.deposit_id, i.token) >= 0)
  end
$$;

alter table deposits rename column hot to watched;
alter table deposits rename column hot_until to watched_until;
alter table deposits rename column cooled_at to dormant_since;
alter table deposits rename constraint deposits_cold_since to deposits_dormant_since;
alter index deposits_hot rename to deposits_watched;
alter index deposits_cold rename to deposits_dormant;

alter table payments rename column tell_by to notify_by;
alter index payments_to_tell rename to payments_to_notify;

update wallets set alarms = array_replace(array_replace(alarms, 'untold', 'rpc_unavailable'), 'gas_soon', 'gas_warning')
  where alarms && array['untold', 'gas_soon'];

-- What was done by hand stays written, and its trigger refuses every change but this one.
alter table operator_actions disable trigger operator_actions_keep;
alter table operator_actions drop constraint operator_actions_action_check;
update operator_actions set action = 'retry' where action = 'release';
alter table operator_actions add constraint operator_actions_action_check
  check (action in ('halt', 'resume', 'adopt', 'adopt foreign', 'unstick', 'retry', 'cancel'));
alter table operator_actions enable trigger operator_actions_keep;

-- From version 18 on, Postgres gives each `not null` a name of its own.
do $$ declare each record; begin
  for each in
    select conrelid::regclass as of, conname as name,
      regexp_replace(regexp_replace(replace(conname, 'intent', 'payout'), '^attempts', 'transaction_attempts'),
        '^deposits_hot', 'deposits_watched') as better
    from pg_constraint
    where contype = 'n' and connamespace = current_schema()::regnamespace and conname ~ '^attempts|intent|^deposits_hot'
  loop
    execute format('alter table %s rename constraint %I to %I', each.of, each.name, each.better);
  end loop;
end $$;
