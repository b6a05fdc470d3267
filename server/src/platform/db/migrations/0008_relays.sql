-- Relays: buyers' signed authorizations (EIP-3009) that a wallet of the service's own carries out, beside its payouts.

-- Relays never queue behind payouts: each lane has a wallet, a loop and a limit of its own.
alter table wallets add column lane text not null default 'payout' check (lane in ('payout', 'relay'));
alter table intents add column lane text not null default 'payout';
alter table intents add constraint intents_lane
  check (lane = case when kind in ('authorize', 'settle') then 'relay' else 'payout' end);
create function set_lane() returns trigger language plpgsql as $$
begin
  new.lane := case when new.kind in ('authorize', 'settle') then 'relay' else 'payout' end;
  return new;
end $$;
create trigger intents_set_lane before insert on intents for each row execute function set_lane();
drop index intents_due;
create index intents_due on intents (chain_id, lane, run_at) where state in ('queued', 'held');

-- Null: that of a release.
alter table intents add column gas bigint check (gas > 0);
-- Whose authorization it is, its nonce, and the EIP-712 hash that was signed, which says all of it.
alter table intents add column payer evm_address;
alter table intents add column auth_nonce evm_hash;
alter table intents add column auth_digest evm_hash;
-- What is not signed by then is cancelled: the authorization, or what it pays, would be over before it is mined.
alter table intents add column relay_by timestamptz;
alter table intents add constraint intents_relay_whole check ((lane = 'relay') = (payer is not null)
  and num_nonnulls(payer, auth_nonce, auth_digest, relay_by) in (0, 4));

-- A relay moves money into its deposit: no book counts it.
alter table intents drop constraint intents_check3;
alter table intents add constraint intents_reserved
  check (case when lane = 'relay' then not reserved else reserved or state in ('held', 'cancelled') end);

create index intents_of_payer on intents (payer, auth_nonce) where payer is not null;
-- Whose failed on chain, and when.
create index intents_failed_of_payer on intents (payer, updated_at) where payer is not null and succeeded = false;
-- An authorization is relayed once, unless the relay ended without being signed; a session has one relay at a time.
create unique index intents_of_authorization on intents (chain_id, token, payer, auth_nonce)
  where payer is not null and state <> 'cancelled';
create unique index intents_relay_of_deposit on intents (deposit_id)
  where kind = 'authorize' and state in ('queued', 'held', 'assigned', 'mined');

-- A session waits for its relay; when that has ended, whoever ended it, the session is looked at.
create function wake_session() returns trigger language plpgsql as $$
begin
  update checkout_sessions set run_at = new.updated_at
    where id = (select session_id from deposits where id = new.deposit_id);
  return null;
end $$;
create trigger intents_wake_session after update on intents for each row
  when (new.kind = 'authorize' and new.state is distinct from old.state and new.state in ('final', 'reverted', 'cancelled'))
  execute function wake_session();
