-- 12_transactions

create table transaction_attempts (
  id bigint generated always as identity primary key,
  payout_id uuid not null references payouts,
  chain_id integer not null,
  wallet evm_address not null,
  nonce bigint not null,
  n integer not null,
  raw text,
  hash evm_hash unique,
  gas bigint not null,
  max_fee numeric(78,0) not null,
  tip numeric(78,0) not null,
  created_at timestamptz not null default clock_timestamp(),
  sent_at timestamptz,
  sends integer not null default 0,
  last_result text check (last_result in ('sent', 'look', 'wait', 'bump', 'alarm', 'unknown')),
  empty boolean not null default false,
  data_fee numeric(78,0) not null default 0,
  unsigned_hash evm_hash,
  signed_at timestamptz,
  unique (chain_id, wallet, nonce, n),
  constraint transaction_attempts_check check (tip <= max_fee),
  constraint transaction_attempts_data_fee check (data_fee >= 0),
  constraint transaction_attempts_signed check (case when raw is null then hash is null and unsigned_hash is not null and signed_at is null else hash is not null end)
);
comment on table transaction_attempts is
  'A transaction that may be broadcast: it is committed before. Never deleted, and what is signed never changes.';
comment on column transaction_attempts.raw is 'The signed bytes; null, like their hash, until it is signed.';
comment on column transaction_attempts.created_at is
  'By the database''s clock: several processes measure the times between attempts.';
comment on column transaction_attempts.empty is 'It does not make its payout''s call, and only uses its nonce.';
comment on column transaction_attempts.data_fee is 'The most that its data may cost in addition to its gas, in wei.';
comment on column transaction_attempts.unsigned_hash is
  'The hash to sign; null for attempts from before it was stored, and for those adopted from the chain.';
create index transaction_attempts_of_payout on transaction_attempts (payout_id);
create index transaction_attempts_unsigned on transaction_attempts (chain_id, wallet, nonce) where raw is null;

create table foreign_nonces (
  chain_id integer not null,
  wallet evm_address not null,
  nonce bigint not null,
  tx_hash evm_hash not null unique,
  block_number bigint not null,
  created_at timestamptz not null,
  primary key (chain_id, wallet, nonce)
);
comment on table foreign_nonces is
  'A nonce of a wallet that was used, in a final block, by a transaction without a payout. An operator confirmed it.';

create table operator_actions (
  id bigint generated always as identity primary key,
  at timestamptz not null,
  action text not null check (action in ('halt', 'resume', 'adopt', 'adopt foreign', 'unstick', 'retry', 'cancel')),
  by_user text not null,
  reason text,
  chain_id integer not null,
  wallet evm_address,
  payout_id uuid references payouts,
  before jsonb not null,
  after jsonb not null
);
comment on table operator_actions is
  'What an operator did: by whom and why. Written in the transaction that does it, and never changed.';
comment on column operator_actions.by_user is 'The name of the Unix user, as the command gave it.';
comment on column operator_actions.before is 'What it changed, as it was; `after` as it is.';

create function keep_actions() returns trigger language plpgsql as $$
begin
  raise exception 'what was done by hand stays written';
end $$;

create function keep_transaction_attempts() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'transaction attempts are never deleted';
  end if;
  if (new.payout_id, new.nonce, new.n, new.empty, new.unsigned_hash) is distinct from
      (old.payout_id, old.nonce, old.n, old.empty, old.unsigned_hash) then
    raise exception 'what transaction attempt % does can not change', old.id;
  end if;
  if old.raw is not null and (new.raw, new.hash) is distinct from (old.raw, old.hash) then
    raise exception 'transaction attempt % is signed and does not change', old.id;
  end if;
  return new;
end $$;

create trigger operator_actions_keep before update or delete on operator_actions
  for each row execute function keep_actions();
create trigger transaction_attempts_keep before delete or update on transaction_attempts
  for each row execute function keep_transaction_attempts();
