-- What the person who runs the service does to its wallets by hand, and what the engine must know of it.

-- Pays nothing of its intent: a transfer of the wallet to itself that uses up a nonce which can't be mined otherwise.
alter table attempts add column empty boolean not null default false;

create or replace function keep_attempts() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'attempts are never deleted';
  end if;
  if (new.intent_id, new.nonce, new.n, new.raw, new.hash, new.empty) is distinct from
      (old.intent_id, old.nonce, old.n, old.raw, old.hash, old.empty) then
    raise exception 'attempt % is signed and does not change', old.id;
  end if;
  return new;
end $$;

-- Cancelled by hand: neither it nor its money is paid out by itself again.
alter table intents add column stopped boolean not null default false;
alter table intents add constraint intents_stopped check (not stopped or state = 'cancelled');

-- Nonces of our wallets that a transaction used which pays no intent; a person has said so, of a finalized block.
create table foreign_nonces (
  chain_id integer not null,
  wallet evm_address not null,
  nonce bigint not null,
  tx_hash evm_hash not null unique,
  block_number bigint not null,
  created_at timestamptz not null,
  primary key (chain_id, wallet, nonce)
);

-- What was done by hand, by whom and why; written in the transaction that does it, and never changed.
create table operator_actions (
  id bigint generated always as identity primary key,
  at timestamptz not null,
  action text not null check (action in ('halt', 'resume', 'adopt', 'adopt foreign', 'unstick', 'release', 'cancel')),
  -- The name of the Unix user, as the command gave it.
  by_user text not null,
  reason text,
  chain_id integer not null,
  wallet evm_address,
  intent_id uuid references intents,
  -- What it changed, as it was and as it is.
  before jsonb not null,
  after jsonb not null
);

create function keep_actions() returns trigger language plpgsql as $$
begin
  raise exception 'what was done by hand stays written';
end $$;
create trigger operator_actions_keep before update or delete on operator_actions
  for each row execute function keep_actions();
