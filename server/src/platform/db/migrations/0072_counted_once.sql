-- An open surplus was withheld once for each row of its transfer. A payment that a reorg removed keeps its row, and where another one
-- took the transfer, the surplus was withheld twice: the merchant's money stayed at the address. Now a row counts where its own payment is
-- granted and claims the transfer.
--
-- Locks: none on tables.
create or replace function room_in(deposit bigint, token text) returns numeric language plpgsql stable as $$
begin
  return coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(s.amount) from surpluses s
        join payments p on p.id = s.payment_id and p.status = 'granted'
        join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
    - coalesce((select sum(o.amount) from outflows o where o.deposit_id = $1 and o.token = $2
        and o.reason <> 'unknown' and o.payout_id is null), 0);
end $$;
