-- What a void moves is for the chain to say: all that is left when it is mined.
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
  if old.state in ('final', 'reverted', 'cancelled') and new.state <> old.state then
    raise exception 'payout % has ended as %', old.id, old.state;
  end if;
  return new;
end $$;
