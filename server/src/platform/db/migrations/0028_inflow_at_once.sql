-- What came into a deposit is added to its book once for each statement, not once for each transfer. A row that is updated
-- 60,000 times in one transaction has as many versions to pass each time: 60,000 transfers to one address took nine minutes.

drop trigger transfers_keep_inflow on transfers;

create or replace function keep_inflow() returns trigger language plpgsql as $$
declare
  changed record;
begin
  -- In one order, as two transactions may write transfers to the same addresses.
  if tg_op = 'INSERT' then
    for changed in
      select deposit_id, token, sum(value) as value from added where state in ('confirmed', 'final') group by 1, 2 order by 1, 2
    loop
      perform add_inflow(changed.deposit_id, changed.token, changed.value);
    end loop;
  else
    for changed in
      select deposit_id, token, sum(value) as value from (
        select deposit_id, token, value from added where state in ('confirmed', 'final')
        union all select deposit_id, token, -value from removed where state in ('confirmed', 'final')) as both_states
      group by 1, 2 having sum(value) <> 0 order by 1, 2
    loop
      perform add_inflow(changed.deposit_id, changed.token, changed.value);
    end loop;
  end if;
  return null;
end $$;

create function add_inflow(deposit bigint, asset text, change numeric) returns void language plpgsql as $$
begin
  insert into deposit_books (deposit_id, token) values (deposit, asset) on conflict do nothing;
  update deposit_books set inflow = inflow + change, shortfall = greatest(0, committed - inflow - change)
    where deposit_id = deposit and token = asset;
end $$;

create trigger transfers_keep_inflow_added after insert on transfers
  referencing new table as added for each statement execute function keep_inflow();
create trigger transfers_keep_inflow_changed after update on transfers
  referencing old table as removed new table as added for each statement execute function keep_inflow();
