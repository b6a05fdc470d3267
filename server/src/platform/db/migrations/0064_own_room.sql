-- What a payment still has is found by the payment. Without statistics the planner took the indexes of the deposit, and each payout, twice
-- before it was signed, read everything that its paywall had ever been paid: 0.4 ms with 70 payments at one address, half of what Postgres did
-- for a payout. "offset 0" and "+ 0" leave it no choice.
--
-- Locks: none on tables.
create or replace function own_room(payment text, deposit bigint, token text) returns numeric language plpgsql stable as $$
begin
  return coalesce((select sum(t.value) from claims c
        cross join lateral (select * from transfers where id = c.transfer_id offset 0) t
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')
        and not t.single_source), 0)
    - coalesce((select sum(i.amount) from payouts i where i.payment_id = $1 and i.deposit_id + 0 = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0);
end $$;
