-- The same rules in PL/pgSQL, which keeps its plans for as long as a connection lasts. In SQL the inner functions were parsed and planned
-- again for each payout, three times before it got its nonce: half of what Postgres did for a payout.
--
-- Locks: none on tables.
create or replace function room_in(deposit bigint, token text) returns numeric language plpgsql stable as $$
begin
  return coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(withheld(s.transfer_id, '{open}')) from surpluses s
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
    - coalesce((select sum(o.amount) from outflows o where o.deposit_id = $1 and o.token = $2
        and o.reason <> 'unknown' and o.payout_id is null), 0);
end $$;

create or replace function own_room(payment text, deposit bigint, token text) returns numeric language plpgsql stable as $$
begin
  return coalesce((select sum(t.value) from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')
        and not t.single_source), 0)
    - coalesce((select sum(i.amount) from payouts i where i.payment_id = $1 and i.deposit_id = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0);
end $$;

create or replace function has_money(i payouts) returns boolean language plpgsql stable as $$
begin
  return case
    when i.lane <> 'payout' then true
    when not i.reserved then false
    when i.kind = 'sweep' then room_in(i.deposit_id, i.token) >= 0 and not exists (
      select from sweep_parts s join transfers t on t.id = s.transfer_id
      where s.payout_id = i.id and (t.state not in ('confirmed', 'final') or t.single_source))
    when i.payment_id is null then true
    else own_room(i.payment_id, i.deposit_id, i.token) >= 0
      and (i.kind = 'return' or room_in(i.deposit_id, i.token) >= 0)
  end;
end $$;
