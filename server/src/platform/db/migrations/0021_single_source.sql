-- What one of two endpoints alone vouches for grants small payments, and pays nothing out: at an address that many pay to it
-- would be paid with the money of others, should nobody have made it.

-- What a payment brought to a deposit and stands by the word of two endpoints, less what is promised of it.
create or replace function own_room(payment text, deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select sum(t.value) from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')
        and not t.single_source), 0)
    - coalesce((select sum(i.amount) from intents i where i.payment_id = $1 and i.deposit_id = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0)
$$;

create or replace function has_money(i intents) returns boolean language sql stable as $$
  select case
    when i.lane <> 'payout' then true
    when not i.reserved then false
    when i.kind = 'sweep' then room_in(i.deposit_id, i.token) >= 0 and not exists (
      select from sweep_parts s join transfers t on t.id = s.transfer_id
      where s.intent_id = i.id and (t.state not in ('confirmed', 'final') or t.single_source))
    when i.payment_id is null then true
    else own_room(i.payment_id, i.deposit_id, i.token) >= 0
      and (i.kind = 'return' or room_in(i.deposit_id, i.token) >= 0)
  end
$$;
