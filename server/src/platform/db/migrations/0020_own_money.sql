-- A payout is promised and signed against the money of its own payment. Money of others at the same address, above all
-- money that can still be returned, is no room for it: after a reorg it would pay the shares of a payment that is gone.

create index payments_open_at on payments (deposit_id, token) include (amount) where status = 'open';

-- What a deposit holds beyond its promises, without what waits for the merchant. Below zero after a reorg.
create function room_in(deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
$$;

-- What a payment brought to a deposit and stands, less what is promised of it.
create function own_room(payment text, deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select sum(t.value) from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')), 0)
    - coalesce((select sum(i.amount) from intents i where i.payment_id = $1 and i.deposit_id = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0)
$$;

-- Whether the money of a promised payout is there, so that it may be signed.
create function has_money(i intents) returns boolean language sql stable as $$
  select case
    when i.lane <> 'payout' then true
    when not i.reserved then false
    when i.kind = 'sweep' then room_in(i.deposit_id, i.token) >= 0 and not exists (
      select from sweep_parts s join transfers t on t.id = s.transfer_id
      where s.intent_id = i.id and t.state not in ('confirmed', 'final'))
    when i.payment_id is null then true
    else own_room(i.payment_id, i.deposit_id, i.token) >= 0
      and (i.kind = 'return' or room_in(i.deposit_id, i.token) >= 0)
  end
$$;

create function keep_others_money() returns trigger language plpgsql as $$
begin
  -- What is adopted has left already.
  if current_setting('sluice.adopting', true) is distinct from 'on' and not has_money(old) then
    raise exception 'the money of payout % is not there', old.id;
  end if;
  return new;
end $$;
create trigger intents_keep_others_money before update on intents for each row
  when (new.state = 'assigned' and old.state in ('queued', 'held')) execute function keep_others_money();
