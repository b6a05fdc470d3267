-- A transaction gets its nonce and all its fields in one database transaction, and its signature after that, as a key may be in
-- another machine. Until then it has the hash that is to be signed; once it is signed, its bytes never change.
--
-- Locks: `transaction_attempts` against reads and writes until all migrations of this start are committed. Its rows are read once.
alter table transaction_attempts
  alter column raw drop not null,
  alter column hash drop not null,
  add column unsigned_hash evm_hash,
  add column signed_at timestamptz,
  add constraint transaction_attempts_signed check (case when raw is null then hash is null and unsigned_hash is not null and signed_at is null
    else hash is not null end);
create index transaction_attempts_unsigned on transaction_attempts (chain_id, wallet, nonce) where raw is null;

create or replace function keep_transaction_attempts() returns trigger language plpgsql as $$
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
