-- What a merchant gave back itself, or recovered, is not there for payouts. Without this, a sweep counted on it: it failed for
-- ever, or took the money of the next payment. What is unknown may be a payout that an old backup still plans, and halts the
-- wallet until that is settled.
create or replace function room_in(deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(withheld(s.transfer_id, '{open}')) from surpluses s
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
    - coalesce((select sum(o.amount) from outflows o where o.deposit_id = $1 and o.token = $2
        and o.reason <> 'unknown'), 0)
$$;
